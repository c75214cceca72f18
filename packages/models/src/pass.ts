import type { Tensor } from "@mlxts/core";

/**
 * The tokens of one pass, sequence after sequence. Ids, positions and lengths are in tensors, so that a recorded pass can
 * be replayed with others; the number of tokens of each sequence is part of the recording.
 */
export interface Tokens {
  /** Tokens of each of the N sequences, 0 for one that takes no part in the pass. T is their sum. */
  counts: readonly number[];
  /** u32 [T] */
  ids: Tensor;
  /** i32 [T] */
  positions: Tensor;
  /** i32 [N]: tokens of each sequence before this pass, which is where its new cache rows begin. */
  start: Tensor;
  /** i32 [N]: tokens of each sequence after it. */
  lengths: Tensor;
  /** i32 [N + 1]: where each sequence begins among the T tokens, and T. */
  cuSeqlens: Tensor;
}

/** Copies of a state's fixed tensors, taken during a pass at every `every`-th token of each sequence. */
export interface Snapshots {
  every: number;
  /**
   * Named as in the state, [⌊T / every⌋, ...]. Sequence after sequence fills ⌊tokens / every⌋ slots; slots may be left
   * over at the end.
   */
  tensors: Readonly<Record<string, Tensor>>;
}

/** Names of the ways to compute a pass, of all families. A model has some of them, its `paths`. */
export const MODEL_PATHS = ["auto", "recurrent", "chunk", "folded", "materialized"] as const;
export type ModelPath = (typeof MODEL_PATHS)[number];

/** How a model records a pass. */
export interface EncodeOptions<Path extends string = ModelPath> {
  /** One of the model's `paths`. */
  path: Path;
  /** Whether the last tokens of this pass can be rolled back. Only for states made with `rollback`. */
  log?: boolean;
  /** Filled in by this pass. */
  snapshots?: Snapshots | undefined;
}
