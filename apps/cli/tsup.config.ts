import { library } from "../../scripts/tsup.ts";

export default library({ entry: ["src/main.ts"], format: ["esm"], dts: false });
