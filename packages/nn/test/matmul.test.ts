import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./matmul.suite.ts";

testSuite(suite);
