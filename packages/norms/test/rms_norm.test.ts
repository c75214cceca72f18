import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./rms_norm.suite.ts";

testSuite(suite);
