import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { dequantizeKernel } from "../src/dequantize.ts";
import { quantizeKernel } from "../src/quantize.ts";
import { quantizedEmbeddingKernel } from "../src/quantized_embedding.ts";
import {
  quantizedMatmulKernel,
  quantizedMatmulRowsKernel,
  quantizedMatvecKernel,
  quantizedMatvecRowsKernel,
} from "../src/quantized_matmul.ts";
import { suite as dequantize } from "./dequantize.suite.ts";
import { suite as quantize } from "./quantize.suite.ts";
import { suite as quantizedEmbedding } from "./quantized_embedding.suite.ts";
import { suite as quantizedMatmul } from "./quantized_matmul.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [quantize, dequantize, quantizedMatmul, quantizedEmbedding];

/** Every kernel that this package declares. */
export const kernels: readonly DeclaredKernel[] = [
  dequantizeKernel,
  quantizeKernel,
  quantizedEmbeddingKernel,
  quantizedMatvecKernel,
  quantizedMatmulKernel,
  quantizedMatmulRowsKernel,
  quantizedMatvecRowsKernel,
];
