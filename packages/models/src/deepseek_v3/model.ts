import { type CommandEncoder, printAsJson, type Tensor } from "@mlxts/core";
import { mlaFusions, type Rotary, rotaryTable, yarnRotary } from "@mlxts/mla";
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
import {
  type AttentionLayer,
  attentionState,
  bindAttention,
  encodeAttention,
  LATENT_PATHS,
  type LatentPath,
} from "./attention.ts";
import type { DeepseekConfig } from "./config.ts";

interface Layer {
  inputNorm: Tensor;
  attention: AttentionLayer;
  postNorm: Tensor;
  mlp: Mlp | undefined;
  experts: MoeBlock | undefined;
}

/** The weights of a model, bound. */
interface Network extends Head {
  layers: readonly Layer[];
  embedding: Matrix;
}

async function bindLayer(w: Weights, config: DeepseekConfig, index: number): Promise<Layer> {
  const { hiddenSize, intermediateSize, layers, moe } = config;
  const isDense = layers[index] === "dense";
  return {
    inputNorm: await w.f32("input_layernorm.weight", [hiddenSize]),
    attention: await bindAttention(w.at("self_attn"), config),
    postNorm: await w.f32("post_attention_layernorm.weight", [hiddenSize]),
    mlp: isDense ? await bindMlp(w.at("mlp"), intermediateSize, hiddenSize) : undefined,
    experts: isDense ? undefined : await bindMoe(w.at("mlp"), moe as MoeSpec),
  };
}

/** Binds the weights that the config asks for. */
async function bindNetwork(weights: Weights, config: DeepseekConfig): Promise<Network> {
  const { hiddenSize, vocabSize } = config;
  const root = weights.at("model");
  const layers: Layer[] = [];
  for (const index of config.layers.keys()) layers.push(await bindLayer(root.at(`layers.${index}`), config, index));
  const embedding = root.matrixAlone("embed_tokens", vocabSize, hiddenSize);
  const head = config.tieEmbeddings ? embedding : await weights.matrix("lm_head", vocabSize, hiddenSize);
  return { layers, embedding, head, norm: await root.f32("norm.weight", [hiddenSize]) };
}

/**
 * DeepSeek-V3 and DeepSeek-V2: layers of multi-head latent attention, each followed by a SwiGLU MLP or by experts.
 * Composed of the public ops of @mlxts/norms, /quant4, /mla, /moe and /nn.
 */
export class DeepseekV3 extends LanguageModel<LatentPath> {
  readonly modelType: string;
  readonly config: DeepseekConfig;
  readonly paths = LATENT_PATHS;
  readonly stepPath = "folded";
  /** Caches have no fixed state. */
  readonly snapshotUnit = 1;
  private readonly network: Network;
  private readonly rotary: Rotary;
  /** Tables of the rotary embedding by their rows. */
  private readonly tables = new Map<number, Tensor>();

  private constructor(weights: Weights, config: DeepseekConfig, settings: ModelSettings, network: Network) {
    super(weights, settings);
    this.modelType = config.modelType;
    this.config = config;
    this.network = network;
    this.rotary = yarnRotary(config.attention.rotary);
  }

  /** @internal Binds the weights; the model owns them. */
  static async load(weights: Weights, config: DeepseekConfig, settings: ModelSettings): Promise<DeepseekV3> {
    return new DeepseekV3(weights, config, settings, await bindNetwork(weights, config));
  }

  get vocabSize(): number {
    return this.config.vocabSize;
  }

  get contextLength(): number {
    return this.config.contextLength;
  }

  /** Taking tokens back only lowers lengths. */
  get maxRollback(): number {
    return this.config.contextLength;
  }

  override get sizes(): ModelSizes {
    const { layers, moe, attention } = this.config;
    const latents = { width: attention.rank, rotated: attention.rope, layers: layers.length };
    if (!moe) return { latents };
    const withExperts = layers.filter((kind) => kind === "experts").length;
    const { experts: count, topK: perToken, shared } = moe;
    return { latents, experts: { count, perToken, layers: withExperts, shared: shared !== undefined } };
  }

  /** @internal */
  override get fusions() {
    return mlaFusions;
  }

  /** @internal */
  protected override get residentExperts() {
    return this.network.layers.flatMap(({ experts }) => (experts ? [experts.resident] : []));
  }

  /** @internal */
  protected stateTensors(sizes: StateSizes): StateSpec[] {
    const { config, activationDtype } = this;
    return config.layers.flatMap((_, index) => attentionState(index, config, { ...sizes, activationDtype }));
  }

  /** A table with a row for each position of a state; states of similar capacity share one. */
  private table(capacity: number): Tensor {
    const rows = Math.max(capacity, Math.min(2 ** Math.ceil(Math.log2(capacity)), this.contextLength));
    const known = this.tables.get(rows);
    if (known) return known;
    const table = this.device.tensor("f32", [rows, 2, this.config.attention.rope / 2], rotaryTable(this.rotary, rows));
    this.tables.set(rows, this.weights.own(table));
    return table;
  }

  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions<LatentPath>): Tensor {
    return encodeLayers(encoder, this.layered(state, tokens, options));
  }

  /** @internal */
  override layered(state: ModelState, tokens: Tokens, { path }: EncodeOptions<LatentPath>): LayeredPass {
    const { config } = this;
    const { layers, embedding } = this.network;
    const { softmaxScale } = this.rotary;
    const eps = config.normEps;
    const table = this.table(state.capacity);
    const rows = tokens.ids.size;
    return {
      layers,
      begin: (encoder) =>
        embed(encoder, tokens.ids, embedding, this.activationDtype).reshape([rows, config.hiddenSize]),
      norm: (encoder, index, hidden, out) =>
        rmsNorm(encoder, { x: hidden, weight: (layers[index] as Layer).inputNorm, out }, { eps }),
      layer: (encoder, index, x, hidden) => {
        const { attention, postNorm, mlp, experts } = layers[index] as Layer;
        const pass = { config, index, state, tokens, path, table, softmaxScale };
        add(encoder, { a: hidden, b: encodeAttention(encoder, attention, x, pass), out: hidden });
        const y = rmsNorm(encoder, { x: hidden, weight: postNorm }, { eps });
        if (experts) encodeMoe(encoder, experts, y, hidden);
        if (mlp) add(encoder, { a: hidden, b: encodeMlp(encoder, mlp, y), out: hidden });
      },
    };
  }

  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[], out?: Tensor): Tensor {
    return encodeHead(encoder, hidden, rows, this.network, { eps: this.config.normEps }, out);
  }

  /** There is nothing to do: rows of caches beyond a sequence's length are not read. */
  encodeRollback(): void {}

  override toJSON(): object {
    return { ...super.toJSON(), type: "DeepseekV3", layers: this.network.layers.length };
  }
}

printAsJson(DeepseekV3);
