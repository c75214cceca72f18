export {
  type Limits,
  measureLimits,
  peakMultiplyKernel,
  peakReadKernel,
  type Rate,
  type RateProbe,
  rateProbe,
} from "./limits.ts";
export { alternate, type Timed, timedCase, timedPeer } from "./measure.ts";
export { type Spread, spreadOf } from "./spread.ts";
