import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./rms_norm.suite.ts";

testSuite(suite);
