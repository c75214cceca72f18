export { packingOf, type Quantisation, type QuantisationSetting, quantisationOf, readQuantised } from "./checkpoint.ts";
export { dequantize } from "./dequantize.ts";
export type { Bits, GroupSize } from "./quantised.ts";
export { quantize } from "./quantize.ts";
export { quantizedEmbedding } from "./quantized_embedding.ts";
export { quantizedMatmul } from "./quantized_matmul.ts";
export type * from "./signatures.ts";
