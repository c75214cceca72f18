import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { addKernel } from "../src/add.ts";
import { argmaxKernel } from "../src/argmax.ts";
import { embeddingKernel } from "../src/embedding.ts";
import { kvCacheAppendKernel } from "../src/kv_cache_append.ts";
import { matmulKernel, matvecKernel } from "../src/matmul.ts";
import { ropeKernel } from "../src/rope.ts";
import { sampleKernel } from "../src/sample.ts";
import { sdpaKernel, sdpaMergeKernel, sdpaPiecesKernel } from "../src/sdpa.ts";
import { sigmoidGateKernel } from "../src/sigmoid_gate.ts";
import { sliceKernel } from "../src/slice.ts";
import { swigluKernel } from "../src/swiglu.ts";
import { suites as elementwise } from "./elementwise.suite.ts";
import { suite as kvCacheAppend } from "./kv_cache_append.suite.ts";
import { suite as matmul } from "./matmul.suite.ts";
import { suite as rope } from "./rope.suite.ts";
import { suites as rows } from "./rows.suite.ts";
import { suite as sample } from "./sample.suite.ts";
import { suite as sdpa } from "./sdpa.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [matmul, ...rows, rope, kvCacheAppend, sdpa, ...elementwise, sample];

/** Every kernel that this package declares. */
export const kernels: readonly DeclaredKernel[] = [
  addKernel,
  argmaxKernel,
  embeddingKernel,
  kvCacheAppendKernel,
  matmulKernel,
  matvecKernel,
  ropeKernel,
  sampleKernel,
  sdpaKernel,
  sdpaPiecesKernel,
  sdpaMergeKernel,
  sigmoidGateKernel,
  sliceKernel,
  swigluKernel,
];
