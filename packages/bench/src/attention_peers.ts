import { type Peer, Random } from "@mlxts/core/testing";
import { onnxPeer } from "./onnx_peer.ts";
import { type Attention, openvinoPeer } from "./openvino_peer.ts";

/** The same in onnxruntime, which has it in f32 on CPUs. */
function multiHeadAttention({ queries, keys, heads, dim, valueDim, causal, copies }: Attention): Peer {
  const random = new Random(3);
  const few = random.normals(8191);
  const floats = (...shape: number[]) => {
    const data = new Float32Array(shape.reduce((a, b) => a * b, 1));
    const shift = random.below(few.length);
    for (let i = 0; i < data.length; i++) data[i] = few[(i + shift) % few.length] as number;
    return { shape, data };
  };
  // Head by head, as in a cache; widths that differ are taken without an axis of heads only.
  const rows = (columns: number) => floats(1, ...(heads === 1 ? [] : [heads]), keys, columns);
  return onnxPeer({
    operator: "MultiHeadAttention",
    about: "f32",
    domain: "com.microsoft",
    attributes: { num_heads: { int: heads }, ...(causal && { unidirectional: { int: 1 } }) },
    inputs: ["q", "k", "v"],
    feeds: { q: floats(1, queries, heads * dim) },
    copies,
    weightsOf: () => ({ k: rows(dim), v: rows(valueDim) }),
    outputs: { y: [1, queries, heads * valueDim] },
  });
}

/**
 * Other libraries' attention, in f32 or, where they have it, in bf16. Their caches have a head of keys for each head of queries:
 * where heads share keys, one query of each is given as several of one head, which reads the keys as often as ours does.
 */
export const attentionPeers = (attention: Attention, computes: "f32" | "bf16"): Peer[] => [
  ...(computes === "f32" ? [multiHeadAttention(attention)] : []),
  openvinoPeer({ ...attention, computes }),
];
