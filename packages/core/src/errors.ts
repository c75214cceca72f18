export {
  type ArgumentFault,
  ArgumentRangeError,
  ArgumentTypeError,
  type CommandBufferCause,
  disposedError,
  type ErrorCode,
  ioError,
  MlxtsError,
  show,
  wrongKind,
  wrongValue,
} from "@mlxts/common/errors";

/** The remedy for numbers that f32 cannot hold. */
export const F32_RANGE = "f32 holds magnitudes from 1.4e-45 to 3.4e38";
