import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./rope.suite.ts";

testSuite(suite);
