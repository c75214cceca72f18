import { type CommandEncoder, type Device, type FloatDtype, type Tensor, wrongValue } from "@mlxts/core";
import type { GenerationDefaults } from "./generation_config.ts";
import type { ModelState } from "./state.ts";
import type { StateOptions } from "./state_options.ts";

const DELTA_PATHS = ["auto", "recurrent", "chunk"] as const;

/** How the gated delta rule is computed over several tokens. */
export type DeltaPath = (typeof DELTA_PATHS)[number];

/** `path` if it is one. */
export function checkPath(op: string, path: DeltaPath): DeltaPath {
  if (!DELTA_PATHS.includes(path)) throw wrongValue(op, "path", `be one of ${DELTA_PATHS.join(", ")}`, path);
  return path;
}

export interface LoadOptions {
  /** Dtype of activations. Default f32 on the CPU, bf16 on a GPU. */
  activationDtype?: FloatDtype;
  /** Ends the loading between two tensors; nothing stays open. */
  signal?: AbortSignal;
}

/**
 * The tokens of one pass, sequence after sequence. Contents are in tensors, so that a recorded pass runs again with
 * others; how many tokens a sequence has is recorded.
 */
export interface Tokens {
  /** Tokens of each of the N sequences; a sequence with 0 sits out. T is their sum. */
  counts: readonly number[];
  /** u32 [T] */
  ids: Tensor;
  /** i32 [T] */
  positions: Tensor;
  /** i32 [N]: cache rows of each sequence before this pass. */
  start: Tensor;
  /** i32 [N]: cache rows after it. */
  lengths: Tensor;
  /** i32 [N + 1]: where each sequence begins among the T tokens, and T. */
  cuSeqlens: Tensor;
}

/** Copies of a state's fixed tensors at every `every`-th token that a pass reaches, counted from its first. */
export interface Snapshots {
  every: number;
  /** Named as in the state, [slots, ...]; those of a sequence follow those of the sequence before. */
  tensors: Readonly<Record<string, Tensor>>;
}

export interface EncodeOptions {
  path: DeltaPath;
  /** The last tokens of this pass can be taken back. Only for states with `rollback`. */
  log?: boolean;
  /** Filled in by this pass. */
  snapshots?: Snapshots | undefined;
}

/** A loaded model: everything that families have in common. */
export interface LanguageModel {
  readonly device: Device;
  readonly modelType: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  /** Ids that end a text. */
  readonly stopTokens: readonly number[];
  /** What `generation_config.json` says of sampling; `Decoder`, `generate` and `generateBatch` use it where options do not. */
  readonly generationDefaults: GenerationDefaults;
  readonly activationDtype: FloatDtype;
  /** Weights as loaded, in bytes. */
  readonly weightBytes: number;
  /** `Snapshots.every` must be a multiple of this. */
  readonly snapshotUnit: number;
  /** Empty sequences. */
  newState(options?: StateOptions): ModelState;
  /** Records one pass over T tokens; the result is the hidden state [T, hidden] before the last norm. */
  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, options: EncodeOptions): Tensor;
  /** Records the logits f32 [rows.length, vocab] of some rows of the hidden state. */
  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[]): Tensor;
  dispose(): void;
  [Symbol.dispose](): void;
}
