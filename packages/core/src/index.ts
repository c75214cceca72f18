import type * as api from "./api.ts";
import { Device as DeviceObject } from "./device.ts";
import type { Dtype } from "./dtype.ts";
import { Tensor as TensorObject } from "./tensor.ts";

export type {
  Arena,
  ArenaMark,
  ArenaOptions,
  BakedOp,
  Block,
  Buffer,
  CommandEncoder,
  DispatchArguments,
  EncoderOptions,
  EndOptions,
  FileOptions,
  Library,
  OpRecord,
  OptimizeOptions,
  ReadOptions,
  Recording,
  Submission,
  SubmissionResult,
  TensorSummary,
  WrapOptions,
} from "./api.ts";
export { ARENA_ALIGNMENT, arenaBytes } from "./arena.ts";
export { type BatchAxis, broadcastAxes, broadcastShape } from "./broadcast.ts";
export { Checkpoint, type CheckpointTensor, openCheckpoint } from "./checkpoint.ts";
export type { CommitOptions } from "./commit_options.ts";
export type { DeviceCounters } from "./counters.ts";
export { cpuLevels } from "./device.ts";
export { DEVICE_KINDS, type DeviceKind, type DeviceOptions } from "./device_options.ts";
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
export { explainTruncatedFiles } from "./file_load.ts";
export { readPlainFile } from "./files.ts";
export { defineFusion, type Fusion, type FusionRule } from "./fusion.ts";
export {
  ELSEWHERE,
  GATHERED_FAULTS,
  GATHERED_PARAMS,
  type Gathered,
  type GatheredSizes,
  gatheredInputs,
  gatheredProducts,
  gatheredSlots,
  ORDERED_FAULTS,
} from "./gathered_rows.ts";
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
  type Scalar,
} from "./kernel.ts";
export { defineLibrary, type LibraryDefinition } from "./library_definition.ts";
export type { DeviceLimits } from "./native.ts";
export { defineOp, unsupported } from "./op.ts";
export { inputTensors, opParams, paramText, shapeText } from "./op_descriptor.ts";
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
export { checkCallback, checkOptionNames, type OptionNames } from "./options.ts";
export { paramsHeader } from "./params_header.ts";
export { OTHER_QUANTIZED_MODES, QUANTIZED, type QuantizedDims, quantizedDims, refuseBits } from "./quantized.ts";
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
export { tileStride } from "./scratch.ts";
export { elementCount, tensorBytes } from "./shape.ts";
export { checkSignal } from "./signal.ts";
export { opSignatures } from "./signatures.ts";
export { sameBytes } from "./tensor.ts";

// These two are types and values at once.
export type Device = api.Device;
/** Opens devices: `Device.open()`. */
export const Device: api.DeviceClass = DeviceObject;
export type Tensor<D extends Dtype = Dtype> = api.Tensor<D>;
/** Makes views of buffers: `new Tensor(buffer, dtype, shape)`. */
export const Tensor: api.TensorClass = TensorObject;
export {
  NORM_OPTIONS,
  NORM_PARAMS,
  NORM_SCRATCH,
  NORM_VARIANTS,
  type NormRows,
  normParams,
  normRowsOnCuda,
  normRowsOnGpu,
} from "./norm_rows.ts";
