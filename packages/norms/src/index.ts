export { gatedRmsNorm } from "./gated_rms_norm.ts";
export { l2Norm } from "./l2_norm.ts";
export { rmsNorm } from "./rms_norm.ts";
export type * from "./signatures.ts";
