import { testSuite } from "../../../scripts/test-suite.ts";
import { suite } from "./gated_rms_norm.suite.ts";

testSuite(suite);
