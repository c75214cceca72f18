import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./sdpa.suite.ts";

testSuite(suite);
