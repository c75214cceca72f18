import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./gated_rms_norm.suite.ts";

testSuite(suite);
