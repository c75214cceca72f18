export { ARENA_ALIGNMENT, type Arena, type ArenaMark, type ArenaOptions, arenaBytes } from "./arena.ts";
export type { Buffer, ReadOptions } from "./buffer.ts";
export { Checkpoint, type CheckpointTensor, openCheckpoint } from "./checkpoint.ts";
export type { DispatchArguments } from "./command_writer.ts";
export type { CommitOptions } from "./commit_options.ts";
export {
  cpuLevels,
  Device,
  type DeviceCounters,
  type DeviceKind,
  type WrapOptions,
} from "./device.ts";
export type { DeviceOptions } from "./device_options.ts";
export { scratchFits } from "./dispatch.ts";
export {
  type ArrayOf,
  DTYPES,
  type Dtype,
  decodeNumbers,
  encodeNumbers,
  FLOATS,
  type FloatDtype,
  isDtype,
  isFloat,
  type RawArray,
  roundTo,
} from "./dtype.ts";
export type { CommandEncoder, EncoderOptions, Recording } from "./encoder.ts";
export {
  type ArgumentFault,
  ArgumentRangeError,
  ArgumentTypeError,
  type CommandBufferCause,
  type ErrorCode,
  MlxtsError,
  wrongKind,
  wrongValue,
} from "./errors.ts";
export { readPlainFile } from "./files.ts";
export { printAsJson } from "./identity.ts";
export {
  type Access,
  constantsOf,
  defineKernel,
  type Kernel,
  type KernelDeclaration,
  type Launch,
  type LaunchDevice,
  type LaunchRule,
  type Machine,
  OLD_SCRATCH,
  oldLaunch,
  type Scalar,
} from "./kernel.ts";
export { defineLibrary, type Library, type LibraryDefinition } from "./library.ts";
export type { DeviceLimits } from "./native.ts";
export { defineOp, inputTensors, opParams, paramText, shapeText, unsupported } from "./op.ts";
export type {
  DtypeRule,
  OnlyKnown,
  Op,
  OpContext,
  OpDescriptor,
  OutputSpec,
  OutputsOf,
  ParamSpec,
  RecordSpec,
  ShapeRule,
  TensorSpec,
} from "./op_types.ts";
export { checkOptionNames, type OptionNames } from "./options.ts";
export { paramsHeader } from "./params_header.ts";
export {
  type HostBytes,
  type HostTensor,
  readSafetensors,
  readStoredSafetensors,
  type StoredDtype,
} from "./safetensors.ts";
export {
  createSafetensors,
  type SafetensorsEntry,
  type SafetensorsWriter,
  writeSafetensors,
} from "./safetensors_writer.ts";
export { elementCount, tensorBytes } from "./shape.ts";
export { checkSignal } from "./signal.ts";
export { opSignatures } from "./signatures.ts";
export type { Submission, SubmissionResult } from "./submission.ts";
export { Tensor, type TensorSummary } from "./tensor.ts";
