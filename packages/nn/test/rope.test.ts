import { testSuite } from "@mlxts/test-kit/suite";
import { suite } from "./rope.suite.ts";

testSuite(suite);
