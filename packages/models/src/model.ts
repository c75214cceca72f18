import type { CommandEncoder, Device, FloatDtype, Tensor } from "@mlxts/core";
import type { ModelState } from "./state.ts";

/** How the gated delta rule is computed over several tokens. */
export type DeltaPath = "auto" | "recurrent" | "chunk";

export interface LoadOptions {
  /** Dtype of activations. Default f32 on the CPU, bf16 on a GPU. */
  activations?: FloatDtype;
}

/** The tokens of one forward pass: all tensors, so that a recorded pass runs again with other contents. */
export interface Tokens {
  /** u32 [1, T] */
  ids: Tensor;
  /** i32 [1, T] */
  positions: Tensor;
  /** i32 [1]: cache rows before this pass. */
  start: Tensor;
  /** i32 [1]: cache rows after it. */
  lengths: Tensor;
}

/** A loaded model: everything that families have in common. */
export interface LanguageModel {
  readonly device: Device;
  readonly modelType: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  /** Ids that end a text. */
  readonly stopTokens: readonly number[];
  readonly activations: FloatDtype;
  /** Weights as loaded, in bytes. */
  readonly weightBytes: number;
  /** An empty sequence with room for `capacity` tokens (default: the model's context length). */
  newState(options?: { capacity?: number }): ModelState;
  /** Records one pass over T tokens; the result is the hidden state [T, hidden] before the last norm. */
  encode(encoder: CommandEncoder, state: ModelState, tokens: Tokens, path: DeltaPath): Tensor;
  /** Records the logits f32 [rows.length, vocab] of some rows of the hidden state. */
  encodeLogits(encoder: CommandEncoder, hidden: Tensor, rows: readonly number[]): Tensor;
  dispose(): void;
  [Symbol.dispose](): void;
}
