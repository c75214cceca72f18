import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./sdpa.suite.ts";

testSuite(suite);
