import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSafetensors, encodeNumbers, type SafetensorsEntry } from "@mlxts/core";
import {
  CONVOLUTION_WIDTH,
  deltaColumns,
  FULL_ATTENTION_INTERVAL,
  hasFullAttention,
  type ModelShape,
  NORM_EPS,
  ROPE_THETA,
  ROTATED_PART,
} from "./bench_shapes.ts";
import { RandomBits } from "./random_bits.ts";

/** Weights that share a scale and a bias. */
const GROUP_SIZE = 64;

/** A tensor and how it gets its bytes, in a buffer that other tensors use too. */
interface RandomTensor extends SafetensorsEntry {
  fill(buffer: ArrayBuffer, seed: number): ArrayBufferView;
}

const sizeOf = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Numbers from `mean - spread` to `mean + spread`. */
function vector(name: string, shape: readonly number[], mean: number, spread: number): RandomTensor {
  const fill = (_: ArrayBuffer, seed: number) =>
    encodeNumbers("bf16", new RandomBits(seed, name).numbers(sizeOf(shape), mean, spread));
  return { name, dtype: "bf16", shape, fill };
}

/**
 * A matrix in MLX's quantization, or a stack of them, with a mean of 0 and a deviation of cols^-1/2: products of it have the
 * size of what they are made from.
 */
function matrix(name: string, shape: readonly number[], bits: 4 | 8 = 4): RandomTensor[] {
  const rows = shape.slice(0, -1);
  const cols = shape.at(-1) as number;
  const codes = 2 ** bits;
  const scale = (cols * ((codes * codes - 1) / 12)) ** -0.5;
  const groups = [...rows, cols / GROUP_SIZE];
  const scalesOf = (seed: number) => new RandomBits(seed, `${name}.scales`).numbers(sizeOf(groups), scale, scale / 4);
  return [
    {
      name: `${name}.weight`,
      dtype: "u32",
      shape: [...rows, (cols * bits) / 32],
      fill: (buffer, seed) => {
        const words = new Uint32Array(buffer, 0, (sizeOf(shape) * bits) / 32);
        new RandomBits(seed, name).fill(words);
        return words;
      },
    },
    { name: `${name}.scales`, dtype: "bf16", shape: groups, fill: (_, seed) => encodeNumbers("bf16", scalesOf(seed)) },
    {
      name: `${name}.biases`,
      dtype: "bf16",
      shape: groups,
      fill: (_, seed) =>
        encodeNumbers(
          "bf16",
          scalesOf(seed).map((each) => (each * (1 - codes)) / 2),
        ),
    },
  ];
}

function attentionTensors(at: string, { hidden, attention: { heads, kvHeads, headDim } }: ModelShape): RandomTensor[] {
  return [
    // Queries, and the gates of the outputs.
    ...matrix(`${at}.q_proj`, [2 * heads * headDim, hidden]),
    ...matrix(`${at}.k_proj`, [kvHeads * headDim, hidden]),
    ...matrix(`${at}.v_proj`, [kvHeads * headDim, hidden]),
    ...matrix(`${at}.o_proj`, [hidden, heads * headDim]),
    vector(`${at}.q_norm.weight`, [headDim], 1, 0.1),
    vector(`${at}.k_norm.weight`, [headDim], 1, 0.1),
  ];
}

function deltaTensors(at: string, shape: ModelShape): RandomTensor[] {
  const { hidden, family } = shape;
  const { valueHeads, headDim } = shape.delta;
  const { values, channels } = deltaColumns(shape);
  const inputs =
    family === "qwen3_next"
      ? [
          ...matrix(`${at}.in_proj_qkvz`, [channels + values, hidden]),
          ...matrix(`${at}.in_proj_ba`, [2 * valueHeads, hidden]),
        ]
      : [
          ...matrix(`${at}.in_proj_qkv`, [channels, hidden]),
          ...matrix(`${at}.in_proj_z`, [values, hidden]),
          ...matrix(`${at}.in_proj_a`, [valueHeads, hidden]),
          ...matrix(`${at}.in_proj_b`, [valueHeads, hidden]),
        ];
  return [
    ...inputs,
    ...matrix(`${at}.out_proj`, [hidden, values]),
    vector(`${at}.conv1d.weight`, [channels, CONVOLUTION_WIDTH, 1], 0, 0.8),
    vector(`${at}.A_log`, [valueHeads], 1.4, 1.3),
    vector(`${at}.dt_bias`, [valueHeads], -2.5, 1.5),
    vector(`${at}.norm.weight`, [headDim], 1, 0.1),
  ];
}

function mlpTensors(at: string, { hidden, intermediate, experts }: ModelShape): RandomTensor[] {
  const mlp = (name: string, lead: readonly number[], width: number) => [
    ...matrix(`${name}.gate_proj`, [...lead, width, hidden]),
    ...matrix(`${name}.up_proj`, [...lead, width, hidden]),
    ...matrix(`${name}.down_proj`, [...lead, hidden, width]),
  ];
  if (!experts) return mlp(at, [], intermediate);
  return [
    // mlx-lm gives routers and gates 8 bits.
    ...matrix(`${at}.gate`, [experts.count, hidden], 8),
    ...mlp(`${at}.switch_mlp`, [experts.count], experts.width),
    ...mlp(`${at}.shared_expert`, [], experts.width),
    ...matrix(`${at}.shared_expert_gate`, [1, hidden], 8),
  ];
}

const prefixOf = ({ family }: ModelShape) => (family === "qwen3_5" ? "language_model.model" : "model");
const isTied = ({ family }: ModelShape) => family === "qwen3_5";

function tensorsOf(shape: ModelShape): RandomTensor[] {
  const { hidden, layers, vocab } = shape;
  const prefix = prefixOf(shape);
  const layer = (index: number) => {
    const at = `${prefix}.layers.${index}`;
    return [
      vector(`${at}.input_layernorm.weight`, [hidden], 1, 0.1),
      vector(`${at}.post_attention_layernorm.weight`, [hidden], 1, 0.1),
      ...(hasFullAttention(index)
        ? attentionTensors(`${at}.self_attn`, shape)
        : deltaTensors(`${at}.linear_attn`, shape)),
      ...mlpTensors(`${at}.mlp`, shape),
    ];
  };
  return [
    ...matrix(`${prefix}.embed_tokens`, [vocab, hidden]),
    ...Array.from({ length: layers }, (_, i) => layer(i)).flat(),
    vector(`${prefix}.norm.weight`, [hidden], 1, 0.1),
    ...(isTied(shape) ? [] : matrix("lm_head", [vocab, hidden])),
  ];
}

function quantizationOf({ layers, experts }: ModelShape) {
  const eightBits = Array.from({ length: experts ? layers : 0 }, (_, i) =>
    ["gate", "shared_expert_gate"].map((name) => `model.layers.${i}.mlp.${name}`),
  ).flat();
  return {
    group_size: GROUP_SIZE,
    bits: 4,
    mode: "affine",
    ...Object.fromEntries(eightBits.map((path) => [path, { group_size: GROUP_SIZE, bits: 8 }])),
  };
}

function configOf(shape: ModelShape): Record<string, unknown> {
  const { attention, delta, experts } = shape;
  const quantization = quantizationOf(shape);
  const rope = { partial_rotary_factor: ROTATED_PART, rope_theta: ROPE_THETA };
  return {
    model_type: shape.family,
    hidden_act: "silu",
    attention_bias: false,
    eos_token_id: 0,
    vocab_size: shape.vocab,
    hidden_size: shape.hidden,
    intermediate_size: shape.intermediate,
    num_hidden_layers: shape.layers,
    full_attention_interval: FULL_ATTENTION_INTERVAL,
    num_attention_heads: attention.heads,
    num_key_value_heads: attention.kvHeads,
    head_dim: attention.headDim,
    linear_num_key_heads: delta.keyHeads,
    linear_num_value_heads: delta.valueHeads,
    linear_key_head_dim: delta.headDim,
    linear_value_head_dim: delta.headDim,
    linear_conv_kernel_dim: CONVOLUTION_WIDTH,
    max_position_embeddings: shape.context,
    rms_norm_eps: NORM_EPS,
    tie_word_embeddings: isTied(shape),
    ...(shape.family === "qwen3_5" ? { rope_parameters: { rope_type: "default", ...rope } } : rope),
    ...(experts && {
      num_experts: experts.count,
      num_experts_per_tok: experts.perToken,
      moe_intermediate_size: experts.width,
      shared_expert_intermediate_size: experts.width,
      decoder_sparse_step: 1,
      mlp_only_layers: [],
      norm_topk_prob: true,
    }),
    quantization,
    quantization_config: quantization,
  };
}

const bytesOf = ({ dtype, shape }: SafetensorsEntry) => sizeOf(shape) * (dtype === "u32" ? 4 : 2);

/** Bytes of the tensors of such a checkpoint. */
export const checkpointBytes = (shape: ModelShape): number =>
  tensorsOf(shape).reduce((sum, tensor) => sum + bytesOf(tensor), 0);

/**
 * Writes a checkpoint of random weights, 4 bits in groups of 64, as mlx-lm writes it: the same bytes for the same seed. No
 * two layers have the same. `check` is called before each tensor and may throw; memory holds one tensor at a time.
 */
export async function writeRandomCheckpoint(
  folder: string,
  shape: ModelShape,
  seed: number,
  check: () => void | Promise<void>,
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(configOf(shape), null, 2));
  const tensors = tensorsOf(shape);
  const buffer = new ArrayBuffer(Math.max(...tensors.map(bytesOf)));
  using file = createSafetensors(join(folder, "model.safetensors"), tensors, { format: "mlx" });
  for (const tensor of tensors) {
    await check();
    file.write(tensor.name, tensor.fill(buffer, seed));
  }
  file.close();
}
