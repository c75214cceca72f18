import { type CommandEncoder, type Device, type FloatDtype, printAsJson, type Tensor } from "@mlxts/core";
import { add, swiglu } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import type { GenerationDefaults } from "./generation_config.ts";
import type { EncodeOptions, LanguageModel, Tokens } from "./model.ts";
import { type AttentionLayer, attentionState, bindAttention, encodeAttention } from "./qwen3_5_attention.ts";
import type { Qwen3_5Config } from "./qwen3_5_config.ts";
import { bindDelta, CHUNK, type DeltaLayer, deltaState, encodeDelta, encodeDeltaRollback } from "./qwen3_5_delta.ts";
import { ModelState } from "./state.ts";
import { checkStateOptions, type StateOptions } from "./state_options.ts";
import { embed, linear, type Matrix, type Weights } from "./weights.ts";

/** The most tokens that the log of the delta rule holds. */
const MAX_ROLLBACK = 64;

/** What a model has besides its weights. */
type LoadSettings = Pick<LanguageModel, "stopTokens" | "activationDtype" | "generationDefaults">;

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

/**
 * Qwen3.5 (text, dense): layers of gated delta rule and of gated attention, each followed by a SwiGLU MLP.
 * Composed of the public ops of @mlxts/norms, /quant4, /delta-rule and /nn.
 */
export class Qwen3_5 implements LanguageModel {
  readonly device: Device;
  readonly modelType = "qwen3_5";
  readonly config: Qwen3_5Config;
  readonly stopTokens: readonly number[];
  readonly generationDefaults: GenerationDefaults;
  readonly activationDtype: FloatDtype;
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
    { stopTokens, activationDtype, generationDefaults }: LoadSettings,
    parts: { layers: Layer[]; embedding: Matrix; head: Matrix; norm: Tensor; weightOffset: 0 | 1 },
  ) {
    this.device = weights.checkpoint.device;
    this.weights = weights;
    this.config = config;
    this.stopTokens = stopTokens;
    this.generationDefaults = generationDefaults;
    this.activationDtype = activationDtype;
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
  static async load(weights: Weights, config: Qwen3_5Config, settings: LoadSettings): Promise<Qwen3_5> {
    try {
      return await Qwen3_5.bind(weights, config, settings);
    } catch (error) {
      weights.dispose();
      throw error;
    }
  }

  private static async bind(weights: Weights, config: Qwen3_5Config, settings: LoadSettings): Promise<Qwen3_5> {
    const { activationDtype } = settings;
    const { checkpoint } = weights;
    const { hiddenSize, intermediateSize, vocabSize } = config;
    const prefix = PREFIXES.find((candidate) => checkpoint.has(`${candidate}embed_tokens.weight`)) ?? "model.";
    const root = weights.under(prefix);
    const layers: Layer[] = [];
    for (const [i, kind] of config.layers.entries()) {
      const w = root.at(`layers.${i}`);
      layers.push({
        inputNorm: await w.f32("input_layernorm.weight", [hiddenSize]),
        postNorm: await w.f32("post_attention_layernorm.weight", [hiddenSize]),
        gate: await w.matrix("mlp.gate_proj", intermediateSize, hiddenSize),
        up: await w.matrix("mlp.up_proj", intermediateSize, hiddenSize),
        down: await w.matrix("mlp.down_proj", hiddenSize, intermediateSize),
        mixer: await (kind === "full_attention"
          ? bindAttention(w.at("self_attn"), config)
          : bindDelta(w.at("linear_attn"), config, activationDtype)),
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
    return new Qwen3_5(weights, config, settings, {
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
    return this.weights.checkpoint.byteLength;
  }

  /** Chunks of the delta rule, as many as the convolution reaches back. */
  get snapshotUnit(): number {
    return CHUNK * Math.ceil((this.config.delta.taps - 1) / CHUNK);
  }

  newState(options: StateOptions = {}): ModelState {
    const { config, activationDtype } = this;
    const sizes = checkStateOptions(options, this.contextLength, MAX_ROLLBACK);
    const parts = { ...sizes, activationDtype };
    return new ModelState(this, {
      ...sizes,
      tensors: config.layers.flatMap((kind, i) =>
        kind === "full_attention" ? attentionState(i, config, parts) : deltaState(i, config, parts),
      ),
      encodeRollback: (encoder, state, sequence, rejected) => {
        for (const [i, kind] of config.layers.entries())
          if (kind === "linear_attention") encodeDeltaRollback(encoder, state, sequence, rejected, config, i);
      },
    });
  }

  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions): Tensor {
    const { config, frequencies, weightOffset } = this;
    const { eps } = this.normOptions;
    const rows = tokens.ids.size;
    const hidden = embed(encoder, tokens.ids, this.embedding, this.activationDtype).reshape([rows, config.hiddenSize]);
    const mark = encoder.arena?.mark();
    for (const [index, layer] of this.layers.entries()) {
      const x = rmsNorm(encoder, { x: hidden, weight: layer.inputNorm }, { eps, weightOffset });
      const { mixer } = layer;
      const mixed =
        mixer.kind === "full_attention"
          ? encodeAttention(encoder, mixer, x, state, tokens, { config, index, frequencies, weightOffset })
          : encodeDelta(encoder, mixer, x, state, tokens, { ...options, config, index });
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

  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[]): Tensor {
    const { hiddenSize, vocabSize } = this.config;
    const normed = encoder.empty(this.activationDtype, [rows.length, hiddenSize]);
    // Neighboring rows go together.
    for (let begin = 0, end = 1; begin < rows.length; begin = end++) {
      const first = rows[begin] as number;
      while (end < rows.length && rows[end] === first + end - begin) end++;
      const x = hidden.slice(first, first + end - begin);
      rmsNorm(encoder, { x, weight: this.norm, out: normed.slice(begin, end) }, this.normOptions);
    }
    return linear(encoder, normed, this.head, "f32").reshape([rows.length, vocabSize]);
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { modelType, activationDtype, vocabSize, contextLength, weightBytes, stopTokens } = this;
    return {
      type: "Qwen3_5",
      modelType,
      layers: this.layers.length,
      vocabSize,
      contextLength,
      device: this.device.kind,
      activationDtype,
      weightBytes,
      stopTokens,
    };
  }

  dispose(): void {
    this.frequencies.dispose();
    this.weights.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

printAsJson(Qwen3_5);
