import { library } from "../../scripts/tsup.ts";

export default library({ entry: { index: "src/index.ts", testing: "test/suites.ts" } });
