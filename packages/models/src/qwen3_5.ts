import type { CommandEncoder, Device, Dtype, FloatDtype, Tensor } from "@mlxts/core";
import { causalConv1d, deltaGates, gatedDeltaRule } from "@mlxts/delta-rule";
import { add, kvCacheAppend, rope, sdpa, sigmoidGate, slice, swiglu } from "@mlxts/nn";
import { gatedRmsNorm, rmsNorm } from "@mlxts/norms";
import type { DeltaPath, LanguageModel, Tokens } from "./model.ts";
import type { Qwen3_5Config } from "./qwen3_5_config.ts";
import { ModelState, type StateTensor } from "./state.ts";
import { embed, linear, type Matrix, type Weights } from "./weights.ts";

interface DeltaLayer {
  kind: "linear_attention";
  qkv: Matrix;
  z: Matrix;
  a: Matrix;
  b: Matrix;
  out: Matrix;
  conv: Tensor;
  aLog: Tensor;
  dtBias: Tensor;
  norm: Tensor;
}

interface AttentionLayer {
  kind: "full_attention";
  q: Matrix;
  k: Matrix;
  v: Matrix;
  out: Matrix;
  qNorm: Tensor;
  kNorm: Tensor;
}

type Layer = {
  inputNorm: Tensor;
  postNorm: Tensor;
  gate: Matrix;
  up: Matrix;
  down: Matrix;
  mixer: DeltaLayer | AttentionLayer;
};

/** Where checkpoints keep the text model: Hugging Face text and multimodal, mlx-lm. */
const PREFIXES = ["model.", "model.language_model.", "language_model.model.", ""];

/** Columns `begin` … of the rows of x [.., D]; a view when there is one row. */
function columns(encoder: CommandEncoder, x: Tensor, begin: number, size: number): Tensor {
  return x.size === x.lastDim ? x.view(begin, [...x.shape.slice(0, -1), size]) : slice(encoder, { x }, { begin, size });
}

/**
 * Qwen3.5 (text, dense): layers of gated delta rule and of gated attention, each followed by a SwiGLU MLP.
 * Composed of the public ops of @mlxts/norms, /quant4, /delta-rule and /nn.
 */
export class Qwen3_5 implements LanguageModel {
  readonly device: Device;
  readonly modelType = "qwen3_5";
  readonly config: Qwen3_5Config;
  readonly stopTokens: readonly number[];
  readonly activations: FloatDtype;
  private readonly weights: Weights;
  private readonly layers: readonly Layer[];
  private readonly embedding: Matrix;
  private readonly head: Matrix;
  private readonly norm: Tensor;
  private readonly frequencies: Tensor;
  /** 1 where norm weights mean 1 + w: checkpoints in the Hugging Face layout. */
  private readonly weightOffset: 0 | 1;

  private constructor(
    weights: Weights,
    config: Qwen3_5Config,
    stopTokens: readonly number[],
    activations: FloatDtype,
    parts: { layers: Layer[]; embedding: Matrix; head: Matrix; norm: Tensor; weightOffset: 0 | 1 },
  ) {
    this.device = weights.checkpoint.device;
    this.weights = weights;
    this.config = config;
    this.stopTokens = stopTokens;
    this.activations = activations;
    this.layers = parts.layers;
    this.embedding = parts.embedding;
    this.head = parts.head;
    this.norm = parts.norm;
    this.weightOffset = parts.weightOffset;
    const { rotaryDim, ropeTheta } = config.attention;
    const frequencies = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => ropeTheta ** ((-2 * i) / rotaryDim));
    this.frequencies = this.device.tensor("f32", [rotaryDim / 2], frequencies);
  }

  /** Binds the weights that the config asks for; the model owns them, and disposes them when it cannot be made. */
  static async load(
    weights: Weights,
    config: Qwen3_5Config,
    options: { stopTokens: readonly number[]; activations: FloatDtype },
  ): Promise<Qwen3_5> {
    try {
      return await Qwen3_5.bind(weights, config, options.stopTokens, options.activations);
    } catch (error) {
      weights.dispose();
      throw error;
    }
  }

  private static async bind(
    weights: Weights,
    config: Qwen3_5Config,
    stopTokens: readonly number[],
    activations: FloatDtype,
  ): Promise<Qwen3_5> {
    const { checkpoint } = weights;
    const { hiddenSize, intermediateSize, vocabSize, attention, delta } = config;
    const prefix = PREFIXES.find((candidate) => checkpoint.has(`${candidate}embed_tokens.weight`)) ?? "model.";
    const root = weights.under(prefix);
    const { values, channels } = delta;

    const mixer = async (kind: Layer["mixer"]["kind"], at: Weights): Promise<Layer["mixer"]> => {
      if (kind === "full_attention") {
        const w = at.at("self_attn");
        const { heads, kvHeads, headDim } = attention;
        return {
          kind,
          q: await w.matrix("q_proj", 2 * heads * headDim, hiddenSize),
          k: await w.matrix("k_proj", kvHeads * headDim, hiddenSize),
          v: await w.matrix("v_proj", kvHeads * headDim, hiddenSize),
          out: await w.matrix("o_proj", hiddenSize, heads * headDim),
          qNorm: await w.f32("q_norm.weight", [headDim]),
          kNorm: await w.f32("k_norm.weight", [headDim]),
        };
      }
      const w = at.at("linear_attn");
      return {
        kind,
        qkv: await w.matrix("in_proj_qkv", channels, hiddenSize),
        z: await w.matrix("in_proj_z", values, hiddenSize),
        a: await w.matrix("in_proj_a", delta.valueHeads, hiddenSize),
        b: await w.matrix("in_proj_b", delta.valueHeads, hiddenSize),
        out: await w.matrix("out_proj", hiddenSize, values),
        conv: await w.f32("conv1d.weight", [channels, delta.taps]),
        aLog: await w.f32("A_log", [delta.valueHeads]),
        dtBias: await w.f32("dt_bias", [delta.valueHeads]),
        // The original code multiplies by this one in the dtype of activations.
        norm:
          w.dtype("norm.weight") === activations
            ? w.tensor("norm.weight", [delta.valueDim])
            : await w.f32("norm.weight", [delta.valueDim]),
      };
    };

    const layers: Layer[] = [];
    for (const [i, kind] of config.layers.entries()) {
      const w = root.at(`layers.${i}`);
      layers.push({
        inputNorm: await w.f32("input_layernorm.weight", [hiddenSize]),
        postNorm: await w.f32("post_attention_layernorm.weight", [hiddenSize]),
        gate: await w.matrix("mlp.gate_proj", intermediateSize, hiddenSize),
        up: await w.matrix("mlp.up_proj", intermediateSize, hiddenSize),
        down: await w.matrix("mlp.down_proj", hiddenSize, intermediateSize),
        mixer: await mixer(kind, w),
      });
    }
    const embedding = await root.matrix("embed_tokens", vocabSize, hiddenSize);
    const headPrefix = ["", "language_model."].find((candidate) => checkpoint.has(`${candidate}lm_head.weight`)) ?? "";
    const head = config.tieEmbeddings
      ? embedding
      : await weights.under(headPrefix).matrix("lm_head", vocabSize, hiddenSize);
    const norm = await root.f32("norm.weight", [hiddenSize]);
    // mlx-lm moves the taps of convolutions to the middle axis and stores norm weights as 1 + w in the same step.
    const firstConv = config.layers.indexOf("linear_attention");
    const huggingFace =
      firstConv < 0 || (root.shape(`layers.${firstConv}.linear_attn.conv1d.weight`).at(-1) as number) !== 1;
    return new Qwen3_5(weights, config, stopTokens, activations, {
      layers,
      embedding,
      head,
      norm,
      weightOffset: huggingFace ? 1 : 0,
    });
  }

  get vocabSize(): number {
    return this.config.vocabSize;
  }

  get contextLength(): number {
    return this.config.contextLength;
  }

  get weightBytes(): number {
    return this.weights.checkpoint.bytes;
  }

  newState({ capacity = this.contextLength }: { capacity?: number } = {}): ModelState {
    const { device, activations } = this;
    const { attention, delta } = this.config;
    const tensors: Record<string, StateTensor> = {};
    const zeros = (name: string, dtype: Dtype, shape: number[], cache: boolean) => {
      tensors[name] = { tensor: device.tensor(dtype, shape), cache };
    };
    for (const [i, kind] of this.config.layers.entries()) {
      if (kind === "full_attention") {
        for (const cache of ["keys", "values"])
          zeros(`${cache}.${i}`, activations, [1, attention.kvHeads, capacity, attention.headDim], true);
      } else {
        zeros(`conv.${i}`, activations, [1, delta.taps - 1, delta.channels], false);
        zeros(`delta.${i}`, "f32", [1, delta.valueHeads, delta.valueDim, delta.keyDim], false);
      }
    }
    return new ModelState(device, capacity, tensors);
  }

  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, path: DeltaPath): Tensor {
    const { eps, weightOffset } = this.normOptions;
    const rows = tokens.ids.size;
    const hidden = embed(encoder, tokens.ids, this.embedding, this.activations).reshape([rows, this.config.hiddenSize]);
    const mark = encoder.arena?.mark();
    for (const [i, layer] of this.layers.entries()) {
      const x = rmsNorm(encoder, { x: hidden, weight: layer.inputNorm }, { eps, weightOffset });
      const { mixer } = layer;
      const mixed =
        mixer.kind === "full_attention"
          ? this.attention(encoder, mixer, x, state, i, tokens)
          : this.delta(encoder, mixer, x, state, i, path);
      add(encoder, { a: hidden, b: mixed, out: hidden });
      const y = rmsNorm(encoder, { x: hidden, weight: layer.postNorm }, { eps, weightOffset });
      const gate = linear(encoder, y, layer.gate);
      const up = linear(encoder, y, layer.up);
      const down = linear(encoder, swiglu(encoder, { gate, up }), layer.down);
      add(encoder, { a: hidden, b: down, out: hidden });
      if (mark) encoder.arena?.rewind(mark);
    }
    return hidden;
  }

  private get normOptions() {
    return { eps: this.config.normEps, weightOffset: this.weightOffset } as const;
  }

  private delta(
    encoder: CommandEncoder,
    layer: DeltaLayer,
    x: Tensor,
    state: ModelState,
    index: number,
    path: DeltaPath,
  ): Tensor {
    const { keyHeads, valueHeads, keyDim, valueDim, keys, values, channels } = this.config.delta;
    const rows = x.shape[0] as number;
    const qkv = linear(encoder, x, layer.qkv).reshape([1, rows, channels]);
    const convState = state.tensor(`conv.${index}`);
    const { y } = causalConv1d(
      encoder,
      { x: qkv, weight: layer.conv, state: convState, newState: convState },
      { activation: "silu" },
    );
    const { g, beta } = deltaGates(encoder, {
      a: linear(encoder, x, layer.a),
      b: linear(encoder, x, layer.b),
      aLog: layer.aLog,
      dtBias: layer.dtBias,
    });
    const part = (begin: number, heads: number, dim: number) =>
      columns(encoder, y, begin, heads * dim).reshape([1, rows, heads, dim]);
    const deltaState = state.tensor(`delta.${index}`);
    const { o } = gatedDeltaRule(
      encoder,
      {
        q: part(0, keyHeads, keyDim),
        k: part(keys, keyHeads, keyDim),
        v: part(2 * keys, valueHeads, valueDim),
        g: g.reshape([1, rows, valueHeads]),
        beta: beta.reshape([1, rows, valueHeads]),
        initialState: deltaState,
        finalState: deltaState,
      },
      { scale: keyDim ** -0.5, qkNorm: "sum-eps", path },
    );
    const z = linear(encoder, x, layer.z).reshape([rows * valueHeads, valueDim]);
    const gated = gatedRmsNorm(
      encoder,
      { x: o.reshape([rows * valueHeads, valueDim]), z, weight: layer.norm },
      { eps: this.config.normEps, rounding: "before-weight" },
    );
    return linear(encoder, gated.reshape([rows, values]), layer.out);
  }

  private attention(
    encoder: CommandEncoder,
    layer: AttentionLayer,
    x: Tensor,
    state: ModelState,
    index: number,
    tokens: Tokens,
  ): Tensor {
    const { heads, kvHeads, headDim } = this.config.attention;
    const rows = x.shape[0] as number;
    // Each head has its query and then its output gate.
    const both = linear(encoder, x, layer.q).reshape([rows * heads, 2 * headDim]);
    const query = slice(encoder, { x: both }, { begin: 0, size: headDim });
    const gate = slice(encoder, { x: both }, { begin: headDim, size: headDim });
    const rotated = (projected: Tensor, weight: Tensor, count: number) => {
      const x = rmsNorm(encoder, { x: projected.reshape([1, rows, count, headDim]), weight }, this.normOptions);
      return rope(encoder, { x, positions: tokens.positions, inverseFrequencies: this.frequencies });
    };
    const q = rotated(query, layer.qNorm, heads);
    const k = rotated(linear(encoder, x, layer.k), layer.kNorm, kvHeads);
    const v = linear(encoder, x, layer.v).reshape([1, rows, kvHeads, headDim]);
    const kCache = state.tensor(`keys.${index}`);
    const vCache = state.tensor(`values.${index}`);
    kvCacheAppend(encoder, { k, v, kCache, vCache, start: tokens.start });
    const mixed = sdpa(encoder, { q, kCache, vCache, lengths: tokens.lengths }, { scale: headDim ** -0.5 });
    const gated = sigmoidGate(encoder, { x: mixed.reshape([rows * heads, headDim]), gate });
    return linear(encoder, gated.reshape([rows, heads * headDim]), layer.out);
  }

  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[]): Tensor {
    const { hiddenSize, vocabSize } = this.config;
    const normed = encoder.empty(this.activations, [rows.length, hiddenSize]);
    for (const [i, row] of rows.entries())
      rmsNorm(
        encoder,
        { x: hidden.slice(row, row + 1), weight: this.norm, out: normed.slice(i, i + 1) },
        this.normOptions,
      );
    return linear(encoder, normed, this.head, "f32").reshape([rows.length, vocabSize]);
  }

  dispose(): void {
    this.frequencies.dispose();
    this.weights.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
