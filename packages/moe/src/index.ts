export { moeFusions } from "./fusions.ts";
export { moeCombine } from "./moe_combine.ts";
export { moeCombineRmsNorm } from "./moe_combine_rms_norm.ts";
export { moeKeep } from "./moe_keep.ts";
export { moeOrder } from "./moe_order.ts";
export { moePages } from "./moe_pages.ts";
export { moeRoute } from "./moe_route.ts";
export type * from "./signatures.ts";
