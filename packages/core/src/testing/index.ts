export { changeLimits } from "../device.ts";
export { inlineIncludes, metalTexts } from "../metal_source.ts";
export { type Bench, type BenchCase, defineBench, type Peer, type PeerProcess } from "./bench.ts";
export type { Case, CaseInput, DeclaredKernel, Reference64, ReferenceFunction, Suite } from "./case.ts";
export { type CaseResult, type OutputResult, type SuiteCase, suiteCases } from "./conformance.ts";
export { BARS, type Comparison, compare, type ErrorClass, within } from "./metric.ts";
export { Random } from "./random.ts";
export { opArguments, roundedInputs, sameBytes } from "./run_case.ts";
export { type SuiteTest, suiteTests } from "./suite.ts";
