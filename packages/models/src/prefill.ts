import { checkOptionNames, checkSignal, type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkPath, type DeltaPath, type LanguageModel } from "./model.ts";
import { checkCache, type PrefixCache } from "./prefix_cache.ts";
import type { CallOptions } from "./signal.ts";
import { checkState, type ModelState } from "./state.ts";
import { checkInteger } from "./state_options.ts";
import { checkIds, PassTokens } from "./tokens.ts";

/** Options of `prefill`. */
export interface PrefillOptions extends CallOptions {
  /** Default `auto`. */
  path?: DeltaPath;
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

/** What a prompt asks of the passes: where one ends and the next begins. */
interface Plan {
  ids: readonly number[];
  positions: readonly number[];
  /** Tokens that the cache had. */
  restored: number;
  /** Ends of the passes, ascending; the first begins after what was restored. */
  ends: number[];
}

/**
 * Feeds `ids` to the state and returns the logits (f32, `vocabSize` each) of the positions asked for.
 * All arguments are checked first; a refused call leaves the state as it was. `signal` is looked at between passes of
 * `blockLength` tokens: a canceled call leaves those that had run, which `state.lengths` counts.
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
 * its sequence alone. The result is, for each sequence, the logits (f32, `vocabSize` each) of its positions: those of
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

/** Copies of lists of positions that lie within their prompts. */
function checkPositions(
  op: string,
  prompts: readonly number[][],
  positions: readonly (readonly number[])[],
): number[][] {
  return prompts.map(({ length }, at) => {
    const name = prompts.length === 1 ? "positions" : `positions[${at}]`;
    const wanted = positions[at] as readonly number[];
    if (!Array.isArray(wanted)) throw wrongKind(op, name, "be an array of positions", wanted);
    const rule = length > 0 ? `be integers from 0 to ${length - 1}` : "be empty, as its prompt";
    return Array.from(wanted as number[], (position) => {
      if (Number.isInteger(position) && position >= 0 && position < length) return position;
      throw wrongValue(op, name, rule, position);
    });
  });
}

/** @internal Both of the above, for a state that is in use; `argument` is what the prompts are called. Says also what the cache had. */
export async function feed(
  op: string,
  model: LanguageModel,
  state: ModelState,
  prompts: readonly number[][],
  options: PrefillBatchOptions & { positions: readonly (readonly number[])[] },
  argument: string,
): Promise<{ logits: Float32Array[][]; restored: number[] }> {
  const { path = "auto", blockLength = 512, cache, signal } = options;
  checkPath(op, path);
  checkInteger(op, "blockLength", blockLength, 1);
  const positions = checkPositions(op, prompts, options.positions);
  state.assertRoom(
    op,
    prompts.map((ids) => ids.length),
    argument,
  );
  cache?.check(op, state, prompts, blockLength);

  const plans = prompts.map((ids, at): Plan => {
    const wanted = positions[at] as number[];
    // Something has to be computed where logits are wanted, and where tokens may be taken back.
    const most = Math.min(ids.length, ...wanted, ...(state.maxRollback > 0 ? [ids.length - 1] : []));
    const restored = cache && ids.length > 0 ? cache.restore(state, at, ids.slice(0, Math.max(0, most)), path) : 0;
    return { ids, positions: wanted, restored, ends: passEnds(ids.length, restored, blockLength, cache?.every) };
  });
  const passes = Math.max(...plans.map(({ ends }) => ends.length));
  const logits = plans.map(() => new Map<number, Float32Array>());
  const arena = model.device.arena(1 << 22, { grow: true });
  try {
    for (let pass = 0; pass < passes; pass++) {
      signal?.throwIfAborted();
      arena.reset();
      await runPass(pass - passes, arena);
    }
  } finally {
    arena.dispose();
  }
  signal?.throwIfAborted();
  return {
    logits: plans.map((plan, at) => plan.positions.map((position) => logits[at]?.get(position) as Float32Array)),
    restored: plans.map(({ restored }) => restored),
  };

  /** The pass before the end by `fromEnd`: all sequences end in the last one. */
  async function runPass(fromEnd: number, scratch: ReturnType<typeof model.device.arena>): Promise<void> {
    const parts = plans.map(({ ids, restored, ends }) => {
      const end = ends.at(fromEnd);
      const begin = end === undefined ? 0 : (ends.at(fromEnd - 1) ?? restored);
      return { begin, end: end ?? 0, ids: end === undefined ? [] : ids.slice(begin, end) };
    });
    const counts = parts.map(({ ids }) => ids.length);
    const log = fromEnd === -1 && state.maxRollback > 0;
    using tokens = new PassTokens(model.device, counts);
    tokens.write(
      state,
      parts.map(({ ids }) => ids),
    );
    using encoder = model.device.encoder({ arena: scratch });
    // Not where single tokens may be taken back: their kernel's bits are not those of whole chunks.
    using kept = log ? undefined : cache?.snapshots(state, counts);
    const hidden = model.encode(encoder, state, tokens.tokens, { path, log, snapshots: kept?.snapshots });
    const wanted: { at: number; position: number; row: number }[] = [];
    let row = 0;
    for (const [at, { begin, end }] of parts.entries()) {
      for (const position of new Set(plans[at]?.positions))
        if (position >= begin && position < end) wanted.push({ at, position, row: row + position - begin });
      row += end - begin;
    }
    const rows = wanted.length > 0 ? wanted.map((one) => one.row) : undefined;
    const values = rows && model.encodeLogits(encoder, hidden, rows);
    await state.advance(encoder.commit(), counts, log);
    if (values)
      for (const [i, { at, position }] of wanted.entries())
        logits[at]?.set(position, (await values.slice(i, i + 1).read()) as Float32Array);
    if (kept) await cache?.keep(state, kept, plans, parts, path);
  }
}

/**
 * Where passes end: every `blockLength` tokens of a prompt. With a cache also at the last token that it can keep, so that
 * the rest is computed in the same way whether it had the tokens before or not.
 */
function passEnds(length: number, restored: number, blockLength: number, every: number | undefined): number[] {
  const kept = every ? Math.floor(length / every) * every : 0;
  const ends: number[] = [];
  for (let at = restored; at < length; ) {
    const next = Math.min(length, (Math.floor(at / blockLength) + 1) * blockLength);
    at = at < kept ? Math.min(next, kept) : next;
    ends.push(at);
  }
  return ends;
}
