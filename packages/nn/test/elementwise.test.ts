import { testSuite } from "../../../scripts/test-suite.ts";
import { suites } from "./elementwise.suite.ts";

for (const suite of suites) testSuite(suite);
