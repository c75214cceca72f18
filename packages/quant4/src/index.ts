export {
  type Packing,
  packingOf,
  type Quantization,
  type QuantizationSetting,
  quantizationOf,
  readQuantized,
} from "./checkpoint.ts";
export { dequantize } from "./dequantize.ts";
export { quant4Fusions } from "./fusions.ts";
export { gatherQuantizedMatmul } from "./gather_quantized_matmul.ts";
export { gatherQuantizedMatmulSwiglu } from "./gather_quantized_matmul_swiglu.ts";
export { multiQuantizedMatmul } from "./multi_quantized_matmul.ts";
export { PRODUCT_BITS } from "./product_launch.ts";
export { quantize } from "./quantize.ts";
export type { Bits, GroupSize } from "./quantized.ts";
export { quantizedEmbedding } from "./quantized_embedding.ts";
export { quantizedMatmul } from "./quantized_matmul.ts";
export { quantizedMatmulSwiglu } from "./quantized_matmul_swiglu.ts";
export type * from "./signatures.ts";
