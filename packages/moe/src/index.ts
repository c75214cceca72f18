export { moeCombine } from "./moe_combine.ts";
export { moeOrder } from "./moe_order.ts";
export { moeRoute } from "./moe_route.ts";
export type * from "./signatures.ts";
