import {
  type CommandEncoder,
  type Device,
  type FloatDtype,
  type Fusion,
  MlxtsError,
  printAsJson,
  type Tensor,
  tensorBytes,
  wrongValue,
} from "@mlxts/core";
import type { GenerationDefaults } from "./generation_config.ts";
import type { LayeredPass } from "./layers.ts";
import type { EncodeOptions, ModelPath, Tokens } from "./pass.ts";
import { limitExperts, type ResidentExperts } from "./resident_experts.ts";
import { ModelState } from "./state.ts";
import { checkStateOptions, type StateOptions, type StateSizes, type StateSpec } from "./state_options.ts";
import type { Weights } from "./weights.ts";

/** What every model is made from besides its config and its weights. */
export interface ModelSettings {
  stopTokens: readonly number[];
  generationDefaults: GenerationDefaults;
  activationDtype: FloatDtype;
}

/** Sizes of the parts that only some models have. */
export interface ModelSizes {
  /** Experts of each layer that has some, and how many of them each token goes to. */
  experts?: { count: number; perToken: number; layers: number; shared: boolean };
  /** What a latent cache holds of each token: numbers of a latent, and of the rotated key beside it. */
  latents?: { width: number; rotated: number; layers: number };
}

/** What a state takes, in bytes. */
export interface StateMemory {
  /** Caches, for each token that a sequence has room for. */
  perToken: number;
  /** What does not depend on the number of tokens, for each sequence. */
  perSequence: number;
  total: number;
}

/** A loaded model, whatever its family. */
export abstract class LanguageModel<Path extends string = ModelPath> {
  readonly device: Device;
  /** The `model_type` of its family. */
  abstract readonly modelType: string;
  abstract readonly vocabSize: number;
  abstract readonly contextLength: number;
  /** Ids that end a text. */
  readonly stopTokens: readonly number[];
  /** Sampling of `generation_config.json`; `Decoder`, `generate` and `generateBatch` use it where options do not. */
  readonly generationDefaults: GenerationDefaults;
  readonly activationDtype: FloatDtype;
  /**
   * Names of the ways to compute a pass, for the option `path`; the first is the default. Their results agree within the
   * error bounds of the ops, not to the bit.
   */
  abstract readonly paths: readonly Path[];
  /** The path of decode steps. On it a pass over several tokens leaves the state that one pass for each token leaves. */
  abstract readonly stepPath: Path;
  /** The most tokens that the `rollback` of a state can be made for. */
  abstract readonly maxRollback: number;
  /** `Snapshots.every` must be a multiple of this. */
  abstract readonly snapshotUnit: number;
  /** @internal */
  protected readonly weights: Weights;

  /** @internal The model owns the weights. */
  protected constructor(weights: Weights, { stopTokens, generationDefaults, activationDtype }: ModelSettings) {
    this.device = weights.checkpoint.device;
    this.weights = weights;
    this.stopTokens = stopTokens;
    this.generationDefaults = generationDefaults;
    this.activationDtype = activationDtype;
  }

  /** @internal Rules by which recorded ops of the family's own become one. */
  get fusions(): readonly Fusion[] {
    return [];
  }

  /** @internal The experts of each layer that has some. */
  protected get residentExperts(): readonly ResidentExperts[] {
    return [];
  }

  /** @internal Lets all experts together take so many bytes of memory. */
  limitExperts(op: string, bytes: number): void {
    for (const ages of limitExperts(op, this.device, this.residentExperts, bytes)) this.weights.own(ages);
  }

  /** Weights as loaded, in bytes. */
  get weightBytes(): number {
    return this.weights.checkpoint.byteLength;
  }

  /** Names of the checkpoint's tensors that it uses. */
  get tensorNames(): ReadonlySet<string> {
    return this.weights.used;
  }

  /** Sizes of the parts that only some models have. */
  get sizes(): ModelSizes {
    return {};
  }

  /** The memory that `newState` with these options takes. */
  stateMemory(options: StateOptions = {}): StateMemory {
    const sizes = checkStateOptions(options, this.contextLength, this.maxRollback, "model.stateMemory");
    const bytes = (specs: readonly StateSpec[]) =>
      specs.reduce((sum, { dtype, shape }) => sum + tensorBytes(dtype, shape), 0);
    const specs = this.stateTensors(sizes);
    const caches = bytes(specs.filter(({ kind }) => kind === "cache"));
    const total = bytes(specs);
    const { sequences, capacity } = sizes;
    return { perToken: caches / sequences / capacity, perSequence: (total - caches) / sequences, total };
  }

  /**
   * Empty sequences.
   * @throws MlxtsError `Disposed` after `dispose()`; RangeError for options out of range
   */
  newState(options: StateOptions = {}): ModelState {
    if (this.weights.checkpoint.disposed && !this.device.disposed)
      throw new MlxtsError("Disposed", "the model has been disposed", { what: "model" });
    const sizes = checkStateOptions(options, this.contextLength, this.maxRollback);
    return new ModelState(this, sizes, this.stateTensors(sizes));
  }

  /** @internal The tensors of a state of these sizes. */
  protected abstract stateTensors(sizes: StateSizes): StateSpec[];

  /** Records one pass over T tokens; the result is the hidden state [T, hidden] before the last norm. */
  abstract encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions<Path>): Tensor;

  /** @internal The pass that `encode` records, layer by layer; undefined for a model that does not tell its layers. */
  layered(_state: ModelState, _tokens: Tokens, _options: EncodeOptions<Path>): LayeredPass | undefined {
    return undefined;
  }

  /** Records the logits f32 [rows.length, vocab] of some rows of the hidden state, in `out` where there is one. */
  abstract encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[], out?: Tensor): Tensor;

  /**
   * Records how one sequence of a state loses the last `rejected` (i32 [1]) tokens of the last pass: its fixed tensors get
   * the contents that they had before these tokens. Caches stay as they are: rows beyond a sequence's length are not read.
   */
  abstract encodeRollback(encoder: CommandEncoder, state: ModelState, sequence: number, rejected: Tensor): void;

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { modelType, activationDtype, vocabSize, contextLength, weightBytes, stopTokens } = this;
    return {
      type: "LanguageModel",
      modelType,
      vocabSize,
      contextLength,
      device: this.device.kind,
      activationDtype,
      weightBytes,
      stopTokens,
    };
  }

  dispose(): void {
    this.weights.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

printAsJson(LanguageModel);

/** `path`, or the model's default, if it is one of the model's paths. */
export function checkPath(
  op: string,
  { paths }: Pick<LanguageModel, "paths">,
  path = paths[0] as ModelPath,
): ModelPath {
  if (!paths.includes(path)) throw wrongValue(op, "path", `be one of ${paths.join(", ")}`, path);
  return path;
}
