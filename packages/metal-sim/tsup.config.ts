import { library } from "../../tsup.base.ts";

export default library({ entry: ["src/index.ts", "src/main.ts", "src/mutant_worker.ts"] });
