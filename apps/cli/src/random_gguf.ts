import { encodeNumbers } from "@mlxts/core";
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
import { type GgufTensor, type GgufValue, ggufBytes, ggufDataBytes, ggufHeader, writeGguf } from "./gguf.ts";
import { RandomBits } from "./random_bits.ts";

interface RandomTensor extends GgufTensor {
  /** Middle and half the width of the range of an f32 tensor's numbers. */
  readonly mean?: number;
  readonly spread?: number;
}

const matrix = (name: string, ...shape: number[]): RandomTensor => ({ name: `${name}.weight`, type: "q4_0", shape });
const vector = (name: string, shape: readonly number[], mean: number, spread: number): RandomTensor => ({
  name,
  type: "f32",
  shape,
  mean,
  spread,
});
const norm = (name: string, size: number) => vector(`${name}.weight`, [size], 1, 0.1);

function attentionTensors(at: string, { hidden, attention: { heads, kvHeads, headDim } }: ModelShape): RandomTensor[] {
  return [
    matrix(`${at}.attn_q`, 2 * heads * headDim, hidden),
    matrix(`${at}.attn_k`, kvHeads * headDim, hidden),
    matrix(`${at}.attn_v`, kvHeads * headDim, hidden),
    matrix(`${at}.attn_output`, hidden, heads * headDim),
    norm(`${at}.attn_q_norm`, headDim),
    norm(`${at}.attn_k_norm`, headDim),
  ];
}

function deltaTensors(at: string, shape: ModelShape): RandomTensor[] {
  const { hidden, family } = shape;
  const { valueHeads, headDim } = shape.delta;
  const { values, channels } = deltaColumns(shape);
  return [
    matrix(`${at}.attn_qkv`, channels, hidden),
    matrix(`${at}.attn_gate`, values, hidden),
    ...(family === "qwen3_next"
      ? [matrix(`${at}.ssm_ba`, 2 * valueHeads, hidden)]
      : [matrix(`${at}.ssm_alpha`, valueHeads, hidden), matrix(`${at}.ssm_beta`, valueHeads, hidden)]),
    vector(`${at}.ssm_conv1d.weight`, [channels, CONVOLUTION_WIDTH], 0, 0.8),
    vector(`${at}.ssm_a`, [valueHeads], -8, 7),
    vector(`${at}.ssm_dt.bias`, [valueHeads], -2.5, 1.5),
    norm(`${at}.ssm_norm`, headDim),
    matrix(`${at}.ssm_out`, hidden, values),
  ];
}

function mlpTensors(at: string, { hidden, intermediate, experts }: ModelShape): RandomTensor[] {
  const mlp = (suffix: string, lead: readonly number[], width: number) => [
    matrix(`${at}.ffn_gate${suffix}`, ...lead, width, hidden),
    matrix(`${at}.ffn_up${suffix}`, ...lead, width, hidden),
    matrix(`${at}.ffn_down${suffix}`, ...lead, hidden, width),
  ];
  if (!experts) return mlp("", [], intermediate);
  // llama.cpp leaves routers and gates in f32.
  const spread = (3 / hidden) ** 0.5;
  return [
    vector(`${at}.ffn_gate_inp.weight`, [experts.count, hidden], 0, spread),
    ...mlp("_exps", [experts.count], experts.width),
    vector(`${at}.ffn_gate_inp_shexp.weight`, [hidden], 0, spread),
    ...mlp("_shexp", [], experts.width),
  ];
}

function tensorsOf(shape: ModelShape): RandomTensor[] {
  const { hidden, layers, vocab, family } = shape;
  const layer = (index: number) => {
    const at = `blk.${index}`;
    return [
      norm(`${at}.attn_norm`, hidden),
      norm(`${at}.post_attention_norm`, hidden),
      ...(hasFullAttention(index) ? attentionTensors(at, shape) : deltaTensors(at, shape)),
      ...mlpTensors(at, shape),
    ];
  };
  return [
    matrix("token_embd", vocab, hidden),
    ...(family === "qwen3_next" ? [matrix("output", vocab, hidden)] : []),
    norm("output_norm", hidden),
    ...Array.from({ length: layers }, (_, i) => layer(i)).flat(),
  ];
}

/** How llama.cpp names the families. */
const ARCHITECTURES = { qwen3_5: "qwen35", qwen3_next: "qwen3next" } as const;
/** "Mostly Q4_0", and the version of quantized types. */
const FILE_TYPE = 2;
const QUANTIZATION_VERSION = 2;

function valuesOf(shape: ModelShape): Record<string, GgufValue> {
  const { attention, delta, experts, family } = shape;
  const arch = ARCHITECTURES[family];
  const sizes = {
    vocab_size: shape.vocab,
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: shape.hidden,
    feed_forward_length: shape.intermediate,
    "attention.head_count": attention.heads,
    "attention.head_count_kv": attention.kvHeads,
    "attention.key_length": attention.headDim,
    "attention.value_length": attention.headDim,
    "rope.dimension_count": attention.headDim * ROTATED_PART,
    "ssm.conv_kernel": CONVOLUTION_WIDTH,
    "ssm.state_size": delta.headDim,
    "ssm.group_count": delta.keyHeads,
    "ssm.time_step_rank": delta.valueHeads,
    "ssm.inner_size": delta.valueHeads * delta.headDim,
    full_attention_interval: FULL_ATTENTION_INTERVAL,
    ...(experts && {
      expert_count: experts.count,
      expert_used_count: experts.perToken,
      expert_feed_forward_length: experts.width,
      expert_shared_feed_forward_length: experts.width,
    }),
  };
  return {
    "general.architecture": { text: arch },
    "general.name": { text: "random" },
    "general.file_type": { u32: FILE_TYPE },
    "general.quantization_version": { u32: QUANTIZATION_VERSION },
    ...Object.fromEntries(Object.entries(sizes).map(([key, size]) => [`${arch}.${key}`, { u32: size }])),
    [`${arch}.attention.layer_norm_rms_epsilon`]: { f32: NORM_EPS },
    [`${arch}.rope.freq_base`]: { f32: ROPE_THETA },
    // Positions in text, and in pictures: how many rotated pairs each has.
    ...(family === "qwen3_5" && { [`${arch}.rope.dimension_sections`]: { i32s: [11, 11, 10, 0] } }),
    "tokenizer.ggml.model": { text: "no_vocab" },
  };
}

/** Bytes of a piece of a Q4_0 tensor: whole blocks of 18, and whole words. */
const PIECE_BYTES = 36 * 2 ** 16;
const BLOCK_BYTES = 18;

/** Elements of a tensor, piece by piece. A Q4_0 matrix has a deviation of about cols^-1/2. */
function* piecesOf(tensor: RandomTensor, seed: number): Generator<Uint8Array> {
  const { name, type, shape, mean = 0, spread = 0 } = tensor;
  const random = new RandomBits(seed, name);
  if (type === "f32") {
    const numbers = random.numbers(
      shape.reduce((a, b) => a * b, 1),
      mean,
      spread,
    );
    yield new Uint8Array(numbers.buffer);
    return;
  }
  // The deviation of codes from 0 to 15.
  const scale = ((shape.at(-1) as number) * (255 / 12)) ** -0.5;
  const scales = encodeNumbers("f16", new RandomBits(seed, `${name}.scales`).numbers(256, scale, scale / 4));
  const words = new Uint32Array(PIECE_BYTES / 4);
  const piece = new Uint8Array(words.buffer);
  const view = new DataView(words.buffer);
  for (let left = ggufBytes(tensor); left > 0; left -= PIECE_BYTES) {
    random.fill(words);
    for (let at = 0; at < PIECE_BYTES; at += BLOCK_BYTES)
      view.setUint16(at, scales[piece[at] as number] as number, true);
    yield left < PIECE_BYTES ? piece.subarray(0, left) : piece;
  }
}

/** Bytes of such a file. */
export const randomGgufBytes = (shape: ModelShape): number =>
  ggufHeader(valuesOf(shape), tensorsOf(shape)).length + ggufDataBytes(tensorsOf(shape));

/**
 * Writes a GGUF file of random weights for llama.cpp, with the sizes of `writeRandomCheckpoint` and as many bits for a
 * weight: matrices in Q4_0. `check` is called before each piece and may throw.
 */
export async function writeRandomGguf(
  path: string,
  shape: ModelShape,
  seed: number,
  check: () => void | Promise<void>,
): Promise<void> {
  async function* checked(tensor: RandomTensor) {
    for (const piece of piecesOf(tensor, seed)) {
      await check();
      yield piece;
    }
  }
  await writeGguf(path, valuesOf(shape), tensorsOf(shape), checked);
}
