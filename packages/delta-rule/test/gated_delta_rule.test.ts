import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./gated_delta_rule.suite.ts";

testSuite(suite);
