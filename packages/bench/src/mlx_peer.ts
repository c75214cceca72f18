// MLX on a GPU, through its Python package, as a benchmark peer: calls that wait for one another, timed by the clock.
import type { FloatDtype } from "@mlxts/core";
import type { Peer } from "@mlxts/core/testing";
import { pythonPeer } from "./python_peer.ts";

/**
 * What is computed. `product`: x [m, cols] with one of `copies` quantized matrices [rows, cols] in turn. `experts`: each of
 * so many tokens with `chosen` of `experts` quantized matrices, `ordered` by expert or as they come. `attention`: queries
 * after so many keys that lie in the cache.
 */
export type MlxWork =
  | { kind: "product"; m: number; rows: number; cols: number; bits: number; groupSize: number; copies: number }
  | { kind: "experts"; tokens: number; chosen: number; experts: number; rows: number; cols: number; ordered: boolean }
  | { kind: "attention"; queries: number; keys: number; heads: number; kvHeads: number; dim: number; valueDim: number };

const PROGRAM = `
import json, sys, time
ask = json.loads(sys.stdin.readline())
import mlx.core as mx
if mx.default_device().type != mx.DeviceType.gpu: sys.exit(1)
dtype = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[ask["dtype"]]
def normal(*shape): return mx.random.normal(shape).astype(dtype)
def quantized(bits, group_size, *shape):
    packed = mx.random.randint(0, 2**31, (*shape[:-1], shape[-1] * bits // 32)).astype(mx.uint32)
    scales, biases = (normal(*shape[:-1], shape[-1] // group_size) * 0.01 for _ in range(2))
    mx.eval(packed, scales, biases)
    return packed, scales, biases
def product(m, rows, cols, bits, groupSize, copies):
    x, matrices = normal(m, cols), [quantized(bits, groupSize, rows, cols) for _ in range(copies)]
    form = {"transpose": True, "bits": bits, "group_size": groupSize}
    return x, lambda x, turn: mx.quantized_matmul(x, *matrices[turn % copies], **form)
def experts(tokens, chosen, experts, rows, cols, ordered):
    matrices = quantized(4, 64, experts, rows, cols)
    choices = [mx.argsort(mx.random.uniform(shape=(tokens, experts)), axis=-1)[:, :chosen] for _ in range(8)]
    x = normal(tokens, 1, 1, cols)
    form = {"transpose": True, "bits": 4, "group_size": 64, "sorted_indices": ordered}
    if ordered:
        # As mlx-lm does: a row for each pair of token and expert, sorted by expert.
        orders = [mx.argsort(each.flatten()) for each in choices]
        choices = [each.flatten()[order] for each, order in zip(choices, orders)]
        x = x.flatten(0, -3)[orders[0] // chosen]
    mx.eval(choices)
    return x, lambda x, turn: mx.gather_qmm(x, *matrices, rhs_indices=choices[turn % 8], **form)
def attention(queries, keys, heads, kvHeads, dim, valueDim):
    q, k, v = normal(1, heads, queries, dim), normal(1, kvHeads, keys, dim), normal(1, kvHeads, keys, valueDim)
    mask = "causal" if queries > 1 else None
    return q, lambda q, turn: mx.fast.scaled_dot_product_attention(q, k, v, scale=dim**-0.5, mask=mask)
work = {"product": product, "experts": experts, "attention": attention}[ask["kind"]]
x, call = work(**{name: value for name, value in ask.items() if name not in ("kind", "dtype", "threads")})
mx.eval(x)
def microseconds(calls):
    begin, out = time.perf_counter(), None
    for turn in range(calls): out = call(x if out is None else mx.depends(x, out), turn)
    mx.eval(out)
    return (time.perf_counter() - begin) * 1e6 / calls
for _ in range(3): microseconds(8)
calls = max(8, min(500, int(20000 / microseconds(8))))
microseconds(calls)
print("ready", mx.__version__, flush=True)
for _ in sys.stdin: print(microseconds(calls), flush=True)
`;

const FUNCTIONS = { product: "quantized_matmul", experts: "gather_qmm", attention: "scaled_dot_product_attention" };

/** A peer on a GPU; absent where Python has no MLX, or one without a GPU. */
export const mlxPeer = (work: MlxWork & { dtype: FloatDtype }): Peer =>
  pythonPeer("MLX", { about: `${FUNCTIONS[work.kind]}, ${work.dtype}`, program: PROGRAM, work });
