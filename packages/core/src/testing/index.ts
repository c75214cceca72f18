export { type Bench, type BenchCase, defineBench, type Peer } from "./bench.ts";
export { BARS, type Comparison, compare, type ErrorClass, within } from "./metric.ts";
export { Random } from "./random.ts";
export {
  type Case,
  type CaseInput,
  opArguments,
  type Reference64,
  type ReferenceFunction,
  roundedInputs,
  type Suite,
  type SuiteTest,
  sameBytes,
  suiteTests,
} from "./suite.ts";
