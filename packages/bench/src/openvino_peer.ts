// OpenVINO as a benchmark peer: products with matrices and attention, in a Python process that takes its own time.
import type { Peer } from "@mlxts/core/testing";
import { pythonPeer } from "./python_peer.ts";

/** Products of x, `[m, cols]`, with `copies` different matrices, `[rows, cols]`, one after the other. */
export interface OpenvinoProduct {
  m: number;
  rows: number;
  cols: number;
  /** u4: 4-bit codes with a scale for each 64 columns. */
  weights: "f32" | "u4";
  /** What it may compute in; int8: x is rounded to bytes, 64 columns at a time. */
  computes: "f32" | "bf16" | "int8";
  copies: number;
}

/** Rows of queries, each of a head, over the keys and values of `copies` different caches, one after the other. */
export interface Attention {
  queries: number;
  keys: number;
  heads: number;
  /** Columns of queries and keys, and of values. */
  dim: number;
  valueDim: number;
  /** Whether the first query sees the first key only, the second one two, and so on. */
  causal: boolean;
  copies: number;
}

/** What it computes in, and in what tensors come. */
export interface OpenvinoAttention extends Attention {
  computes: "f32" | "bf16";
}

// Reads the work as JSON, says that it is ready, then answers each line with µs of one product or attention.
const PROGRAM = `
import json, sys, time
import numpy as np, openvino as ov
from openvino import opset13 as op
ask = json.loads(sys.stdin.readline())
copies = ask["copies"]
random = np.random.default_rng(0)
# Tensors share the memory of arrays, which must stay.
kept, inputs, results = [], [], []
def given(shape, dtype=ov.Type.f32):
    data = random.standard_normal(shape, dtype=np.float32)
    if dtype == ov.Type.bf16: data = (data.view(np.uint32) >> 16).astype(np.uint16)
    kept.append(data)
    inputs.append((op.parameter(shape, dtype), ov.Tensor(data, ov.Shape(shape), dtype)))
    return inputs[-1][0]
if "keys" in ask:
    queries, keys, heads, dim, value_dim = (ask[name] for name in ("queries", "keys", "heads", "dim", "valueDim"))
    dtype = ov.Type.bf16 if ask["computes"] == "bf16" else ov.Type.f32
    q = given([1, heads, queries, dim], dtype)
    for _ in range(copies):
        k, v = given([1, heads, keys, dim], dtype), given([1, heads, keys, value_dim], dtype)
        results.append(op.result(op.scaled_dot_product_attention(q, k, v, causal=ask["causal"])))
else:
    m, rows, cols = (ask[name] for name in ("m", "rows", "cols"))
    x = given([m, cols])
    def matrix():
        if ask["weights"] == "f32":
            return op.constant(random.standard_normal((rows, cols), dtype=np.float32) * 0.02)
        packed = random.integers(0, 256, (rows, cols // 64, 32), dtype=np.uint8)
        kept.append(packed)
        codes = op.convert(op.constant(ov.Tensor(packed, ov.Shape([rows, cols // 64, 64]), ov.Type.u4)), ov.Type.f16)
        scaled = op.multiply(codes, op.constant(random.uniform(0.001, 0.01, (rows, cols // 64, 1)).astype(np.float16)))
        return op.convert(op.reshape(scaled, op.constant(np.array([rows, cols], np.int64)), False), ov.Type.f32)
    results = [op.result(op.matmul(x, matrix(), False, True)) for _ in range(copies)]
model = ov.Core().compile_model(ov.Model(results, [each for each, _ in inputs]), "CPU", {
    "INFERENCE_NUM_THREADS": ask["threads"], "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False,
    "INFERENCE_PRECISION_HINT": "bf16" if ask["computes"] == "bf16" else "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 64 if ask["computes"] == "int8" else 0})
request = model.create_infer_request()
for i, (_, tensor) in enumerate(inputs): request.set_input_tensor(i, tensor)
for _ in range(3): request.infer()
print("ready", ov.__version__.split("-")[0], flush=True)
for _ in sys.stdin:
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < 0.004:
        request.infer()
        calls += 1
    print((time.perf_counter() - start) * 1e6 / calls / copies, flush=True)
`;

const KINDS = { f32: "", bf16: ", bf16", int8: ", int8 activations" };

/** A peer that runs products or attention in OpenVINO; absent where no Python with openvino is found. */
export const openvinoPeer = (work: OpenvinoProduct | OpenvinoAttention): Peer =>
  pythonPeer("OpenVINO", {
    about: `${"keys" in work ? "ScaledDotProductAttention" : work.weights}${KINDS[work.computes]}`,
    program: PROGRAM,
    work,
  });
