// PyTorch and FLA (flash-linear-attention) on an NVIDIA GPU as benchmark peers: CUDA graphs, timed by the GPU.
import type { FloatDtype } from "@mlxts/core";
import type { Peer } from "@mlxts/core/testing";
import { pythonPeer } from "./python_peer.ts";

/** A layer of the gated delta rule: tokens, heads of keys and of values, columns of keys and of values. */
export interface DeltaLayer {
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
}

/** What is computed. `linear`: x [m, cols] with a matrix [rows, cols]; `attention`: causal, of a prompt. */
export type TorchWork =
  | { kind: "rms_norm"; rows: number; dim: number; dtype: FloatDtype }
  | { kind: "linear"; m: number; rows: number; cols: number; dtype: FloatDtype }
  | { kind: "attention"; tokens: number; heads: number; kvHeads: number; dim: number; dtype: FloatDtype }
  | ({ kind: "chunk" | "recurrent" | "state"; dtype: "bf16" } & DeltaLayer);

const PROGRAM = `
import json, sys
ask = json.loads(sys.stdin.readline())
import torch, torch.nn.functional as F
if not torch.cuda.is_available(): sys.exit(1)
dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[ask["dtype"]]
def normal(*shape, dtype=dtype): return torch.randn(shape, device="cuda").to(dtype)
def unit(*shape): return F.normalize(normal(*shape, dtype=torch.float32), dim=-1).to(dtype)
def rms_norm(rows, dim):
    x, weight = normal(rows, dim), normal(dim)
    return lambda: F.rms_norm(x, (dim,), weight, 1e-6)
def linear(m, rows, cols):
    x, weight = normal(m, cols), normal(rows, cols)
    return lambda: F.linear(x, weight)
def attention(tokens, heads, kvHeads, dim):
    q, k, v = normal(1, heads, tokens, dim), normal(1, kvHeads, tokens, dim), normal(1, kvHeads, tokens, dim)
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kvHeads)
def rule(T, Hk, H, K, V, kind):
    gates = -torch.rand(1, T, H, device="cuda")
    state = normal(1, H, K, V, dtype=torch.float32)
    if kind == "state":
        from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
        from fla.ops.utils import chunk_local_cumsum
        k, w, u = unit(1, T, H, K), unit(1, T, H, K), normal(1, T, H, V)
        sums = chunk_local_cumsum(gates, chunk_size=64)
        return lambda: chunk_gated_delta_rule_fwd_h(k, w, u, g=sums, initial_state=state, output_final_state=True)
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    q, k, v, beta = unit(1, T, Hk, K), unit(1, T, Hk, K), normal(1, T, H, V), torch.rand(1, T, H, device="cuda").to(dtype)
    call = chunk_gated_delta_rule if kind == "chunk" else fused_recurrent_gated_delta_rule
    return lambda: call(q, k, v, gates, beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
kinds = {"rms_norm": ("rows", "dim"), "linear": ("m", "rows", "cols"), "attention": ("tokens", "heads", "kvHeads", "dim")}
with torch.no_grad():
    kind = ask["kind"]
    if kind in kinds: work = globals()[kind](*(ask[name] for name in kinds[kind]))
    else: work = rule(*(ask[name] for name in ("T", "Hk", "H", "K", "V", "kind")))
    def recorded(calls):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls): work()
        return graph
    def microseconds(graph):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3): work()
    torch.cuda.synchronize()
    one = recorded(1)
    microseconds(one)
    calls = max(1, min(500, int(4000 / max(microseconds(one), 1)) + 1))
    graph = recorded(calls)
    microseconds(graph)
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin: print(microseconds(graph) / calls, flush=True)
`;

const FUNCTIONS = {
  rms_norm: "rms_norm",
  linear: "linear",
  attention: "scaled_dot_product_attention",
  chunk: "chunk_gated_delta_rule",
  recurrent: "fused_recurrent_gated_delta_rule",
  state: "chunk_gated_delta_rule_fwd_h",
};

/** A peer on an NVIDIA GPU; absent where Python has no torch with CUDA, or no FLA for the gated delta rule. */
export const torchPeer = (work: TorchWork): Peer =>
  pythonPeer("T" in work ? "FLA" : "torch", {
    about: `${FUNCTIONS[work.kind]}, ${work.dtype}`,
    program: PROGRAM,
    work,
  });
