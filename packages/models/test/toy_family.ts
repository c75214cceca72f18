// A second family, for tests of what all families share: an embedding, a causal convolution, one head of attention, a
// norm and an output matrix. It has a fixed state, caches, a log, and a checkpoint layout of its own.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type CommandEncoder, type Tensor, writeSafetensors } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { causalConv1d, convRollback } from "@mlxts/delta-rule";
import { add, kvCacheAppend, sdpa } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import { copy, copyInputSnapshots } from "../src/copy.ts";
import type { Family, ModelConfig, PlannedTensor } from "../src/family.ts";
import { Fields } from "../src/fields.ts";
import { LanguageModel, type ModelSettings } from "../src/language_model.ts";
import type { EncodeOptions, Tokens } from "../src/pass.ts";
import type { ModelState } from "../src/state.ts";
import type { StateSizes, StateSpec } from "../src/state_options.ts";
import { areEqual, runsOf } from "../src/tokens.ts";
import { embed, linear, type Matrix, type Weights } from "../src/weights.ts";
import { temporary } from "./fixtures.ts";

/** Width of the convolution. */
const W = 4;

interface ToyConfig extends ModelConfig {
  hiddenSize: number;
  contextLength: number;
}

interface ToyNetwork {
  embedding: Matrix;
  conv: Tensor;
  projection: Matrix;
  norm: Tensor;
  /** 1 where the norm's weight is stored as w for a factor of 1 + w. */
  weightOffset: 0 | 1;
  head: Matrix;
}

class Toy extends LanguageModel<"whole"> {
  readonly modelType = "toy";
  readonly paths = ["whole"] as const;
  readonly stepPath = "whole";
  readonly maxRollback = 8;
  readonly snapshotUnit = W;
  readonly vocabSize: number;
  readonly contextLength: number;
  private readonly hiddenSize: number;
  private readonly network: ToyNetwork;

  constructor(weights: Weights, config: ToyConfig, settings: ModelSettings, network: ToyNetwork) {
    super(weights, settings);
    this.vocabSize = config.vocabSize;
    this.contextLength = config.contextLength;
    this.hiddenSize = config.hiddenSize;
    this.network = network;
  }

  protected stateTensors({ sequences, capacity, rollback }: StateSizes): StateSpec[] {
    const { hiddenSize: D, activationDtype: dtype } = this;
    const inputs = [sequences, W - 1 + rollback, D];
    const cache = [sequences, 1, capacity, D];
    return [
      { name: "inputs", dtype, shape: inputs, kind: "fixed", tail: W - 1 },
      { name: "keys", dtype, shape: cache, kind: "cache" },
      { name: "values", dtype, shape: cache, kind: "cache" },
      ...(rollback > 0 ? [{ name: "log", dtype, shape: inputs, kind: "log" } as const] : []),
    ];
  }

  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions<"whole">): Tensor {
    const { hiddenSize: D, network } = this;
    const rows = tokens.ids.size;
    const hidden = embed(encoder, tokens.ids, network.embedding, this.activationDtype).reshape([rows, D]);
    const mixed = this.convolve(encoder, hidden, state, tokens, options);
    const seen = this.attend(encoder, linear(encoder, mixed, network.projection), state, tokens);
    return add(encoder, { a: hidden, b: seen });
  }

  private convolve(
    encoder: CommandEncoder,
    hidden: Tensor,
    state: ModelState,
    { counts, cuSeqlens }: Tokens,
    { log, snapshots }: EncodeOptions<"whole">,
  ): Tensor {
    const { hiddenSize: D, network } = this;
    const equal = areEqual(counts);
    const x = hidden.reshape(equal ? [counts.length, counts[0] as number, D] : [1, hidden.shape[0] as number, D]);
    const inputs = state.tensor("inputs");
    const { y } = causalConv1d(
      encoder,
      { x, weight: network.conv, initialState: inputs, finalState: inputs, cuSeqlens: equal ? undefined : cuSeqlens },
      { activation: "silu" },
    );
    if (log) copy(encoder, inputs, state.tensor("log"));
    if (snapshots) copyInputSnapshots(encoder, hidden, counts, snapshots, snapshots.tensors.inputs as Tensor);
    return y.reshape(hidden.shape);
  }

  /** One head of attention, in which each token is its own query, key and value. */
  private attend(encoder: CommandEncoder, x: Tensor, state: ModelState, tokens: Tokens): Tensor {
    const { hiddenSize: D } = this;
    const out = encoder.empty(x.dtype, x.shape);
    for (const { rows, own } of runsOf(tokens)) {
      const part = (t: Tensor) => rows(t, 1, D);
      const [kCache, vCache] = [own(state.tensor("keys")), own(state.tensor("values"))];
      kvCacheAppend(encoder, { k: part(x), v: part(x), kCache, vCache, start: own(tokens.start) });
      const inputs = { q: part(x), kCache, vCache, lengths: own(tokens.lengths), out: part(out) };
      sdpa(encoder, inputs, { scale: D ** -0.5 });
    }
    return out;
  }

  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[], out?: Tensor): Tensor {
    const { norm, weightOffset, head } = this.network;
    const normed = encoder.empty(hidden.dtype, [rows.length, this.hiddenSize]);
    for (const [i, row] of rows.entries())
      rmsNorm(encoder, { x: hidden.slice(row, row + 1), weight: norm, out: normed.slice(i, i + 1) }, { weightOffset });
    return linear(encoder, normed, head, "f32", out).reshape([rows.length, this.vocabSize]);
  }

  encodeRollback(encoder: CommandEncoder, state: ModelState, sequence: number, rejected: Tensor): void {
    const history = state.tensor("log").slice(sequence, sequence + 1);
    convRollback(encoder, { history, rejected, finalState: state.fixedRows("inputs", sequence) }, { kernelSize: W });
  }
}

/** In the "Hugging Face" layout names begin with `toy.` and the norm's factor is 1 + w; the "MLX" layout stores the factor. */
export const toyFamily: Family<ToyConfig> = {
  modelTypes: ["toy"],

  readConfig(json) {
    const fields = new Fields(json);
    return {
      vocabSize: fields.size("vocab_size"),
      hiddenSize: fields.size("hidden_size"),
      contextLength: fields.size("max_position_embeddings"),
    };
  },

  async load(weights, config, settings) {
    const { vocabSize, hiddenSize: D } = config;
    const isMlx = weights.has("norm.weight");
    const root = isMlx ? weights : weights.at("toy");
    const model = new Toy(weights, config, settings, {
      embedding: await root.matrix("embed", vocabSize, D),
      conv: await root.f32("conv.weight", [D, W]),
      projection: await root.matrix("projection", D, D),
      norm: await root.f32("norm.weight", [D]),
      weightOffset: isMlx ? 0 : 1,
      head: await root.matrix("head", vocabSize, D),
    });
    // Its only path has a name of its own, which programs do not know.
    return model as unknown as LanguageModel;
  },

  /** The output matrix has 8 bits, whatever was asked for. */
  planMlx(checkpoint, json, packing) {
    const tensors = checkpoint.names.map((source): PlannedTensor => {
      const { shape } = checkpoint.info(source);
      const name = source.replace(/^toy\./, "");
      const tensor = () => checkpoint.tensor(source);
      const addOne = async () => ((await tensor().read()) as Float32Array).map((w) => 1 + w);
      return {
        name,
        dtype: "f32",
        shape,
        packing: { "head.weight": { ...packing, bits: 8 as const }, "embed.weight": packing }[name],
        read: name === "norm.weight" ? addOne : tensor,
      };
    });
    return { config: { ...json, converted: true }, tensors };
  },
};

/** A checkpoint of the toy family, with random weights. */
export function toyCheckpoint(config: Record<string, unknown> = {}): string {
  const folder = temporary();
  const random = new Random(5);
  const [V, D] = [96, 64];
  const tensor = (shape: readonly number[], scale: number) => {
    const size = shape.reduce((a, b) => a * b, 1);
    return { dtype: "f32" as const, shape, data: Float32Array.from({ length: size }, () => scale * random.normal()) };
  };
  writeSafetensors(join(folder, "model.safetensors"), [
    ["toy.embed.weight", tensor([V, D], 1)],
    ["toy.conv.weight", tensor([D, W], 0.5)],
    ["toy.projection.weight", tensor([D, D], 0.2)],
    ["toy.norm.weight", tensor([D], 1)],
    ["toy.head.weight", tensor([V, D], 0.2)],
  ]);
  const sizes = { vocab_size: V, hidden_size: D, max_position_embeddings: 128, eos_token_id: 0 };
  writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "toy", ...sizes, ...config }));
  return folder;
}
