import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./delta_gates.suite.ts";

testSuite(suite);
