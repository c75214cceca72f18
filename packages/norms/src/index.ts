export { rmsNorm } from "./rms_norm.ts";
