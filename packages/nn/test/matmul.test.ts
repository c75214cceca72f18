import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./matmul.suite.ts";

testSuite(suite);
