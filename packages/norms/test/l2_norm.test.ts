import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./l2_norm.suite.ts";

testSuite(suite);
