// Writes a random 4-bit checkpoint of Qwen3-Next's shape, in mlx-lm's layout, with fewer layers: 0.93 GB for each.
// node scripts/bench/random_qwen3_next.mjs OUT [--layers 8] [--experts 512] [--vocab 151936]
import { randomFillSync } from "node:crypto";
import { closeSync, fsyncSync, mkdirSync, openSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    layers: { type: "string", default: "8" },
    experts: { type: "string", default: "512" },
    vocab: { type: "string", default: "151936" },
  },
});
const [out] = positionals;
if (out === undefined) throw new Error("usage: random_qwen3_next.mjs OUT [--layers N] [--experts N] [--vocab N]");
const [layers, experts, vocab] = [values.layers, values.experts, values.vocab].map(Number);

const hidden = 2048;
const width = 512;
const attention = { heads: 16, kvHeads: 2, headDim: 256 };
const delta = { keyHeads: 16, valueHeads: 32, dim: 128, kernel: 4 };
const GROUP = 64;
const INTERVAL = 4;

const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);
const bf16 = (x) => new Uint32Array(new Float32Array([x]).buffer)[0] >>> 16;
const random = new Uint8Array(64 << 20);

/** Bytes of a tensor, piece by piece. */
function* filled(bytes, fill) {
  for (let done = 0; done < bytes; done += random.length) {
    const piece = random.subarray(0, Math.min(random.length, bytes - done));
    fill(piece);
    yield piece;
  }
}

const constant = (value) => (piece) => new Uint16Array(piece.buffer, 0, piece.length / 2).fill(bf16(value));
/** Numbers about `mean`, an element in `BF16`. */
const about = (mean, spread) => (piece) => {
  const numbers = new Uint16Array(piece.buffer, 0, piece.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = bf16(mean + spread * (2 * Math.random() - 1));
};

const vector = (name, shape, mean, spread) => [{ name, dtype: "BF16", shape, fill: about(mean, spread) }];

/** A quantized matrix, or a stack of them, whose numbers have a mean of 0 and a deviation of cols^-1/2. */
function matrix(name, shape, bits = 4) {
  const cols = shape.at(-1);
  const codes = 2 ** bits;
  const scale = (cols * ((codes * codes - 1) / 12)) ** -0.5;
  const groups = [...shape.slice(0, -1), cols / GROUP];
  return [
    {
      name: `${name}.weight`,
      dtype: "U32",
      shape: [...shape.slice(0, -1), (cols * bits) / 32],
      fill: (piece) => randomFillSync(piece),
    },
    { name: `${name}.scales`, dtype: "BF16", shape: groups, fill: constant(scale) },
    { name: `${name}.biases`, dtype: "BF16", shape: groups, fill: constant((-scale * (codes - 1)) / 2) },
  ];
}

function attentionTensors(at) {
  const { heads, kvHeads, headDim } = attention;
  return [
    ...matrix(`${at}.q_proj`, [2 * heads * headDim, hidden]),
    ...matrix(`${at}.k_proj`, [kvHeads * headDim, hidden]),
    ...matrix(`${at}.v_proj`, [kvHeads * headDim, hidden]),
    ...matrix(`${at}.o_proj`, [hidden, heads * headDim]),
    ...vector(`${at}.q_norm.weight`, [headDim], 1, 0.1),
    ...vector(`${at}.k_norm.weight`, [headDim], 1, 0.1),
  ];
}

function deltaTensors(at) {
  const { keyHeads, valueHeads, dim, kernel } = delta;
  const channels = (2 * keyHeads + valueHeads) * dim;
  return [
    ...matrix(`${at}.in_proj_qkvz`, [channels + valueHeads * dim, hidden]),
    ...matrix(`${at}.in_proj_ba`, [2 * valueHeads, hidden]),
    ...matrix(`${at}.out_proj`, [hidden, valueHeads * dim]),
    ...vector(`${at}.conv1d.weight`, [channels, kernel, 1], 0, 0.8),
    ...vector(`${at}.A_log`, [valueHeads], 1.4, 1.3),
    ...vector(`${at}.dt_bias`, [valueHeads], -2.5, 1.5),
    ...vector(`${at}.norm.weight`, [dim], 1, 0.1),
  ];
}

function layerTensors(index) {
  const at = `model.layers.${index}`;
  const mlp = (name, lead) => [
    ...matrix(`${name}.gate_proj`, [...lead, width, hidden]),
    ...matrix(`${name}.up_proj`, [...lead, width, hidden]),
    ...matrix(`${name}.down_proj`, [...lead, hidden, width]),
  ];
  return [
    ...vector(`${at}.input_layernorm.weight`, [hidden], 1, 0.1),
    ...vector(`${at}.post_attention_layernorm.weight`, [hidden], 1, 0.1),
    ...((index + 1) % INTERVAL === 0 ? attentionTensors(`${at}.self_attn`) : deltaTensors(`${at}.linear_attn`)),
    ...matrix(`${at}.mlp.gate`, [experts, hidden], 8),
    ...mlp(`${at}.mlp.switch_mlp`, [experts]),
    ...mlp(`${at}.mlp.shared_expert`, []),
    ...matrix(`${at}.mlp.shared_expert_gate`, [1, hidden], 8),
  ];
}

/** Writes a safetensors file; returns its size. */
function writeFile(name, tensors) {
  let end = 0;
  const entries = tensors.map(({ name, dtype, shape }) => {
    const begin = end;
    end += sizeOf(shape) * (dtype === "U32" ? 4 : 2);
    return [name, { dtype, shape, data_offsets: [begin, end] }];
  });
  const text = JSON.stringify(Object.fromEntries([["__metadata__", { format: "mlx" }], ...entries]));
  const header = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const file = openSync(join(out, name), "w");
  writeSync(file, length);
  writeSync(file, header);
  tensors.forEach(({ fill }, i) => {
    const [begin, stop] = entries[i][1].data_offsets;
    for (const piece of filled(stop - begin, fill))
      for (let done = 0; done < piece.length; ) done += writeSync(file, piece, done);
  });
  fsyncSync(file);
  closeSync(file);
  return end;
}

const eightBits = Object.fromEntries(
  Array.from({ length: layers }, (_, i) =>
    ["gate", "shared_expert_gate"].map((name) => `model.layers.${i}.mlp.${name}`),
  )
    .flat()
    .map((path) => [path, { group_size: GROUP, bits: 8 }]),
);
const quantization = { group_size: GROUP, bits: 4, ...eightBits };
const config = {
  architectures: ["Qwen3NextForCausalLM"],
  model_type: "qwen3_next",
  hidden_act: "silu",
  attention_bias: false,
  bos_token_id: 0,
  eos_token_id: vocab - 1,
  hidden_size: hidden,
  intermediate_size: 5120,
  num_hidden_layers: layers,
  full_attention_interval: INTERVAL,
  num_attention_heads: attention.heads,
  num_key_value_heads: attention.kvHeads,
  head_dim: attention.headDim,
  partial_rotary_factor: 0.25,
  rope_theta: 10000000,
  linear_num_key_heads: delta.keyHeads,
  linear_num_value_heads: delta.valueHeads,
  linear_key_head_dim: delta.dim,
  linear_value_head_dim: delta.dim,
  linear_conv_kernel_dim: delta.kernel,
  num_experts: experts,
  num_experts_per_tok: 10,
  moe_intermediate_size: width,
  shared_expert_intermediate_size: width,
  decoder_sparse_step: 1,
  mlp_only_layers: [],
  norm_topk_prob: true,
  max_position_embeddings: 262144,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: false,
  vocab_size: vocab,
  quantization,
  quantization_config: quantization,
};

mkdirSync(out, { recursive: true });
writeFileSync(join(out, "config.json"), JSON.stringify(config, null, 2));
const rest = [
  ...matrix("model.embed_tokens", [vocab, hidden]),
  ...matrix("lm_head", [vocab, hidden]),
  ...vector("model.norm.weight", [hidden], 1, 0.1),
];
const parts = [...Array.from({ length: layers }, (_, i) => layerTensors(i)), rest];
const weight_map = {};
let total = 0;
for (const [i, tensors] of parts.entries()) {
  const number = (n) => String(n).padStart(5, "0");
  const name = `model-${number(i + 1)}-of-${number(parts.length)}.safetensors`;
  total += writeFile(name, tensors);
  for (const tensor of tensors) weight_map[tensor.name] = name;
}
writeFileSync(
  join(out, "model.safetensors.index.json"),
  JSON.stringify({ metadata: { total_size: total }, weight_map }),
);
console.log(`${out}: ${(total / 1e9).toFixed(2)} GB`);
