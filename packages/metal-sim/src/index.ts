export { type Clang, findClang } from "./clang.ts";
export {
  type Build,
  compile,
  engine,
  type MetalSource,
  type Program,
  translateSource,
  translateSourceForCuda,
} from "./compile.ts";
export { cudaEntry } from "./cuda_entries.ts";
export { MetalSimError, type MetalSimErrorCode, type Place, type Refusal } from "./errors.ts";
export { type LintFinding, lint } from "./lint.ts";
export type { AddressSpace, Argument, Kernel } from "./reflect.ts";
export {
  type Binding,
  type Bytes,
  type DispatchResult,
  type DispatchSpec,
  type Job,
  type JobResult,
  type LineCoverage,
  type Report,
  type ReportKind,
  run,
  type Schedule,
  type Who,
} from "./run.ts";
