export {
  type Limits,
  measureLimits,
  memoryReading,
  peakMultiplyKernel,
  peakReadKernel,
  type Reading,
} from "./limits.ts";
export { alternate, type Timed, timedCase, timedPeer } from "./measure.ts";
export { type Spread, spreadOf } from "./spread.ts";
