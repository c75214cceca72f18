import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./gated_delta_rollback.suite.ts";

testSuite(suite);
