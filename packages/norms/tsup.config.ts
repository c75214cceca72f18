import { library } from "../../tsup.base.ts";

export default library({ entry: { index: "src/index.ts", testing: "test/suites.ts", bench: "bench/benches.ts" } });
