import { testSuite } from "@mlxts/test-kit/suite";
import { suites } from "./before_weight.suite.ts";

for (const suite of suites) testSuite(suite);
