import { type CommandEncoder, printAsJson, type Tensor } from "@mlxts/core";
import { deltaFusions } from "@mlxts/delta-rule";
import { add } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import { bindMlp, bindMoe, encodeMlp, encodeMoe, type Mlp, type MoeBlock, type MoeSpec } from "../experts.ts";
import { encodeHead, type Head } from "../head.ts";
import { LanguageModel, type ModelSettings, type ModelSizes } from "../language_model.ts";
import { encodeLayers, type LayeredPass } from "../layers.ts";
import type { EncodeOptions, Tokens } from "../pass.ts";
import type { ModelState } from "../state.ts";
import type { StateSizes, StateSpec } from "../state_options.ts";
import { embed, type Matrix, type Weights } from "../weights.ts";
import { type AttentionLayer, attentionState, bindAttention, encodeAttention } from "./attention.ts";
import type { Qwen3_5Config } from "./config.ts";
import {
  bindDelta,
  CHUNK,
  DELTA_PATHS,
  type DeltaLayer,
  type DeltaPath,
  deltaState,
  encodeDelta,
  encodeDeltaRollback,
} from "./delta.ts";

interface Layer {
  inputNorm: Tensor;
  postNorm: Tensor;
  mixer: DeltaLayer | AttentionLayer;
  mlp: Mlp | MoeBlock;
}

/** The weights of a model, bound. */
interface Network extends Head {
  layers: readonly Layer[];
  embedding: Matrix;
  /** f32 [rotaryDim / 2]: the inverse frequencies of the rotary embedding. */
  frequencies: Tensor;
  /** 1 where norm weights are stored as w for a factor of 1 + w: checkpoints in the Hugging Face layout. */
  weightOffset: 0 | 1;
}

/** What comes before the names of the text model's tensors: Hugging Face text and multimodal, mlx-lm. */
const PREFIXES = ["model.", "model.language_model.", "language_model.model.", ""];

async function bindLayer(w: Weights, config: Qwen3_5Config, index: number, settings: ModelSettings): Promise<Layer> {
  const { hiddenSize, intermediateSize } = config;
  return {
    inputNorm: await w.f32("input_layernorm.weight", [hiddenSize]),
    postNorm: await w.f32("post_attention_layernorm.weight", [hiddenSize]),
    mixer: await (config.layers[index] === "full_attention"
      ? bindAttention(w.at("self_attn"), config)
      : bindDelta(w.at("linear_attn"), config, settings.activationDtype)),
    mlp: await (config.hasExperts[index]
      ? bindMoe(w.at("mlp"), config.moe as MoeSpec)
      : bindMlp(w.at("mlp"), intermediateSize, hiddenSize)),
  };
}

/** Binds the weights that the config asks for. */
async function bindNetwork(weights: Weights, config: Qwen3_5Config, settings: ModelSettings): Promise<Network> {
  const { checkpoint } = weights;
  const { hiddenSize, vocabSize } = config;
  const prefix = PREFIXES.find((candidate) => checkpoint.has(`${candidate}embed_tokens.weight`)) ?? "model.";
  const root = weights.under(prefix);
  const layers: Layer[] = [];
  for (const index of config.layers.keys())
    layers.push(await bindLayer(root.at(`layers.${index}`), config, index, settings));
  const embedding = root.matrixAlone("embed_tokens", vocabSize, hiddenSize);
  const headPrefix = ["", "language_model."].find((candidate) => checkpoint.has(`${candidate}lm_head.weight`)) ?? "";
  const head = config.tieEmbeddings
    ? embedding
    : await weights.under(headPrefix).matrix("lm_head", vocabSize, hiddenSize);
  const norm = await root.f32("norm.weight", [hiddenSize]);
  // mlx-lm moves the kernel axis of convolutions to the middle and adds 1 to norm weights in the same step.
  const firstDelta = config.layers.indexOf("linear_attention");
  const isMlx = firstDelta >= 0 && root.shape(`layers.${firstDelta}.linear_attn.conv1d.weight`).at(-1) === 1;
  const { rotaryDim, ropeTheta } = config.attention;
  const frequencies = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => ropeTheta ** ((-2 * i) / rotaryDim));
  return {
    layers,
    embedding,
    head,
    norm,
    frequencies: weights.own(checkpoint.device.tensor("f32", [rotaryDim / 2], frequencies)),
    weightOffset: isMlx ? 0 : 1,
  };
}

/**
 * Qwen3.5 (text) and Qwen3-Next: layers of gated delta rule and of gated attention, each followed by a SwiGLU MLP or a
 * block of experts. Composed of the public ops of @mlxts/norms, /quant4, /delta-rule, /moe and /nn.
 */
export class Qwen3_5 extends LanguageModel<DeltaPath> {
  readonly modelType: Qwen3_5Config["modelType"];
  readonly config: Qwen3_5Config;
  readonly paths = DELTA_PATHS;
  readonly stepPath = "recurrent";
  /** The most tokens that the log of the delta rule holds. */
  readonly maxRollback = 64;
  private readonly network: Network;

  private constructor(weights: Weights, config: Qwen3_5Config, settings: ModelSettings, network: Network) {
    super(weights, settings);
    this.config = config;
    this.modelType = config.modelType;
    this.network = network;
  }

  /** @internal Binds the weights; the model owns them. */
  static async load(weights: Weights, config: Qwen3_5Config, settings: ModelSettings): Promise<Qwen3_5> {
    return new Qwen3_5(weights, config, settings, await bindNetwork(weights, config, settings));
  }

  get vocabSize(): number {
    return this.config.vocabSize;
  }

  get contextLength(): number {
    return this.config.contextLength;
  }

  override get sizes(): ModelSizes {
    const { moe, hasExperts } = this.config;
    if (!moe) return {};
    const layers = hasExperts.filter(Boolean).length;
    return { experts: { count: moe.experts, perToken: moe.topK, layers, shared: moe.shared !== undefined } };
  }

  /** @internal */
  override get fusions() {
    return deltaFusions;
  }

  /** @internal */
  protected override get residentExperts() {
    return this.network.layers.flatMap(({ mlp }) => ("router" in mlp ? [mlp.resident] : []));
  }

  /** Whole chunks of the delta rule, at least as many tokens as the convolution looks back. */
  get snapshotUnit(): number {
    return CHUNK * Math.ceil((this.config.delta.kernelSize - 1) / CHUNK);
  }

  /** @internal */
  protected stateTensors(sizes: StateSizes): StateSpec[] {
    const { config, activationDtype } = this;
    return config.layers.flatMap((kind, index) =>
      kind === "full_attention"
        ? attentionState(index, config, { ...sizes, activationDtype })
        : deltaState(index, config, { ...sizes, activationDtype }),
    );
  }

  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions<DeltaPath>): Tensor {
    return encodeLayers(encoder, this.layered(state, tokens, options));
  }

  /** @internal */
  override layered(state: ModelState, tokens: Tokens, options: EncodeOptions<DeltaPath>): LayeredPass {
    const { config } = this;
    const { layers, embedding, frequencies, weightOffset } = this.network;
    const norm = { eps: config.normEps, weightOffset };
    const rows = tokens.ids.size;
    return {
      layers,
      begin: (encoder) =>
        embed(encoder, tokens.ids, embedding, this.activationDtype).reshape([rows, config.hiddenSize]),
      norm: (encoder, index, hidden, out) =>
        rmsNorm(encoder, { x: hidden, weight: (layers[index] as Layer).inputNorm, out }, norm),
      layer: (encoder, index, x, hidden) => {
        const { mixer, postNorm, mlp } = layers[index] as Layer;
        const mixed =
          mixer.kind === "full_attention"
            ? encodeAttention(encoder, mixer, x, { config, index, state, tokens, frequencies, weightOffset })
            : encodeDelta(encoder, mixer, x, { ...options, config, index, state, tokens });
        add(encoder, { a: hidden, b: mixed, out: hidden });
        const y = rmsNorm(encoder, { x: hidden, weight: postNorm }, norm);
        if ("router" in mlp) encodeMoe(encoder, mlp, y, hidden);
        else add(encoder, { a: hidden, b: encodeMlp(encoder, mlp, y), out: hidden });
      },
    };
  }

  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[], out?: Tensor): Tensor {
    const { weightOffset } = this.network;
    return encodeHead(encoder, hidden, rows, this.network, { eps: this.config.normEps, weightOffset }, out);
  }

  encodeRollback(encoder: CommandEncoder, state: ModelState, sequence: number, rejected: Tensor): void {
    const { config } = this;
    for (const [index, kind] of config.layers.entries())
      if (kind === "linear_attention") encodeDeltaRollback(encoder, state, sequence, rejected, config, index);
  }

  override toJSON(): object {
    return { ...super.toJSON(), type: "Qwen3_5", layers: this.network.layers.length };
  }
}

printAsJson(Qwen3_5);
