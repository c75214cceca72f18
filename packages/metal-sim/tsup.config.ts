import { library } from "../../scripts/tsup.ts";

export default library({ entry: ["src/index.ts", "src/main.ts"] });
