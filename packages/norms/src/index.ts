export { addRmsNorm } from "./add_rms_norm.ts";
export { gatedRmsNorm } from "./gated_rms_norm.ts";
export { l2Norm } from "./l2_norm.ts";
export { rmsNorm } from "./rms_norm.ts";
export { rmsNormAdd } from "./rms_norm_add.ts";
export { rmsNormMul } from "./rms_norm_mul.ts";
export type * from "./signatures.ts";
