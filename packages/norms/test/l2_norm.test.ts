import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./l2_norm.suite.ts";

testSuite(suite);
