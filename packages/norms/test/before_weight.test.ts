import { testSuite } from "../../../scripts/test-suite.ts";
import { suites } from "./before_weight.suite.ts";

for (const suite of suites) testSuite(suite);
