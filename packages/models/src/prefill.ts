import { checkOptionNames, checkSignal, type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { feed } from "./feed.ts";
import type { LanguageModel } from "./language_model.ts";
import type { ModelPath } from "./pass.ts";
import { checkCache, type PrefixCache } from "./prefix_cache.ts";
import type { CallOptions } from "./signal.ts";
import { checkState, type ModelState } from "./state.ts";
import { checkIds } from "./tokens.ts";

/** Options of `prefill`. */
export interface PrefillOptions extends CallOptions {
  /** How the tokens of a pass are computed: one of `model.paths`. Default: the first of them. */
  path?: ModelPath;
  /** Tokens of one pass, of each sequence. Default 512. */
  blockLength?: number;
  /** Positions (0-based, within `ids`) whose logits are wanted. Default: the last one. */
  positions?: readonly number[];
  /**
   * Restores the longest beginning of a prompt that it holds, and keeps what is computed. The sequence must be empty.
   * Calls on different states may use one cache at the same time.
   */
  cache?: PrefixCache;
}

/** Options of `prefillBatch`. */
export interface PrefillBatchOptions extends Omit<PrefillOptions, "positions"> {
  /** For each sequence the positions (0-based, within its prompt) whose logits are wanted. Default: the last one. */
  positions?: readonly (readonly number[])[];
}

const PREFILL_OPTIONS: OptionNames<PrefillOptions> = {
  path: true,
  blockLength: true,
  positions: true,
  cache: true,
  signal: true,
};

/**
 * Feeds `ids` to the state and returns the logits (f32, `vocabSize` each) of the positions asked for.
 * All arguments are checked first; a refused call leaves the state as it was. `signal` is looked at between passes of
 * `blockLength` tokens: the state then holds the tokens of the passes that ran, and `state.lengths` counts them.
 */
export async function prefill(
  model: LanguageModel,
  state: ModelState,
  ids: readonly number[],
  options: PrefillOptions = {},
): Promise<Float32Array[]> {
  const op = "prefill";
  checkOptionNames(op, options, PREFILL_OPTIONS);
  checkSignal(op, options.signal);
  checkCache(op, model, options.cache);
  checkState(op, model, state);
  state.assertSingle(op, "use prefillBatch");
  const prompt = checkIds(op, model, ids);
  const { positions = [prompt.length - 1] } = options;
  using _ = state.begin(op);
  const { logits } = await feed(op, model, state, [prompt], { ...options, positions: [positions] }, "ids");
  return logits[0] as Float32Array[];
}

/**
 * Feeds each sequence of the state its own prompt, all in the same passes whatever their lengths; an empty prompt leaves
 * its sequence as it is. The result is, for each sequence, the logits (f32, `vocabSize` each) of its positions: those of
 * `prefill` with that prompt alone, to the bit where both take the same kernels (README).
 * All arguments are checked first; a refused call leaves the state as it was. `signal` as in `prefill`.
 */
export async function prefillBatch(
  model: LanguageModel,
  state: ModelState,
  prompts: readonly (readonly number[])[],
  options: PrefillBatchOptions = {},
): Promise<Float32Array[][]> {
  const op = "prefillBatch";
  checkOptionNames(op, options, PREFILL_OPTIONS);
  checkSignal(op, options.signal);
  checkCache(op, model, options.cache);
  checkState(op, model, state);
  const batch = checkPrompts(op, model, state, prompts);
  const positions = options.positions ?? batch.map((ids) => (ids.length > 0 ? [ids.length - 1] : []));
  if (!Array.isArray(positions) || positions.length !== batch.length)
    throw wrongValue(op, "positions", `have one list for each of the ${batch.length} prompts`, positions);
  using _ = state.begin(op);
  return (await feed(op, model, state, batch, { ...options, positions }, "prompts")).logits;
}

/** Copies of the prompts: a list of ids for each sequence, not all of them empty. */
export function checkPrompts(
  op: string,
  model: LanguageModel,
  state: ModelState | undefined,
  prompts: readonly (readonly number[])[],
): number[][] {
  if (!Array.isArray(prompts)) throw wrongKind(op, "prompts", "be an array of arrays of token ids", prompts);
  if (state && prompts.length !== state.sequences)
    throw wrongValue(
      op,
      "prompts",
      `have one entry for each of the state's ${state.sequences} sequences`,
      prompts.length,
    );
  if (prompts.length === 0) throw wrongValue(op, "prompts", "have at least one prompt", prompts);
  const batch = Array.from(prompts, (ids, at) => checkIds(op, model, ids, `prompts[${at}]`, true));
  if (batch.every((ids) => ids.length === 0)) throw wrongValue(op, "prompts", "have at least one token", prompts);
  return batch;
}
