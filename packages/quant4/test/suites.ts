import type { Suite } from "@mlxts/core/testing";
import { suite as dequantize } from "./dequantize.suite.ts";
import { suite as quantize } from "./quantize.suite.ts";
import { suite as quantizedEmbedding } from "./quantized_embedding.suite.ts";
import { suite as quantizedMatmul } from "./quantized_matmul.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [quantize, dequantize, quantizedMatmul, quantizedEmbedding];
