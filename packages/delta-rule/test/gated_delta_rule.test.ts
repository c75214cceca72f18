import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./gated_delta_rule.suite.ts";

testSuite(suite);
