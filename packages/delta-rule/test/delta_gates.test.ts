import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./delta_gates.suite.ts";

testSuite(suite);
