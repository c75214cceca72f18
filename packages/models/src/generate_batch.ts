import { checkOptionNames, checkSignal, type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import { feed } from "./feed.ts";
import {
  COMMON_OPTIONS,
  type CommonOptions,
  checkEnd,
  checkReport,
  type Ending,
  type EndOptions,
  Stopwatch,
} from "./generation.ts";
import { withDefaults } from "./generation_config.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import { checkPrompts } from "./prefill.ts";
import { checkCache } from "./prefix_cache.ts";
import { SAMPLING_OPTIONS, type SamplingOptions } from "./sampling.ts";
import { checkState } from "./state.ts";
import { Steps } from "./steps.ts";

/** What can be different for each sequence of a batch. */
type SequenceOptions = SamplingOptions & EndOptions;

/** Options of `generateBatch`. */
export interface GenerateBatchOptions extends CommonOptions {
  /** What is different for each sequence. Seeds not given here: `seed` and the sequence's number added. */
  each?: readonly SequenceOptions[];
  /** Filled in when the generation ends: why the text of each sequence did. */
  endings?: Partial<Ending>[];
}

const BATCH_OPTIONS: OptionNames<GenerateBatchOptions> = { ...COMMON_OPTIONS, each: true, endings: true };
const SEQUENCE_OPTIONS: OptionNames<SequenceOptions> = { ...SAMPLING_OPTIONS, maxTokens: true, stopTokens: true };

/** All of the options that can be wrong by themselves. */
function check(model: LanguageModel, prompts: readonly (readonly number[])[], options: GenerateBatchOptions) {
  const op = "generateBatch";
  checkOptionNames(op, options, BATCH_OPTIONS);
  const { each, seed = 0, state, signal, cache, endings = [] } = options;
  checkSignal(op, signal);
  checkCache(op, model, cache);
  if (state !== undefined) checkState(op, model, state);
  const batch = checkPrompts(op, model, state, prompts);
  for (const [at, ids] of batch.entries())
    if (ids.length === 0) throw wrongValue(op, `prompts[${at}]`, "have at least one token", ids);
  if (each !== undefined && !Array.isArray(each)) throw wrongKind(op, "each", "be an array of options", each);
  if (each && each.length !== batch.length)
    throw wrongValue(op, "each", `have one entry for each of the ${batch.length} prompts`, each.length);
  if (!Array.isArray(endings)) throw wrongKind(op, "endings", "be an array to fill in", endings);
  checkInteger(op, "seed", seed, 0, 2 ** 32 - 1);
  const sequences = batch.map((ids, at) => {
    const special = each?.[at] === undefined ? {} : (each[at] as SequenceOptions);
    checkOptionNames(op, special, SEQUENCE_OPTIONS, `each[${at}]`);
    const said = Object.fromEntries(Object.entries(special).filter(([, value]) => value !== undefined));
    const all: GenerateBatchOptions = { ...options, seed: (seed + at) % 2 ** 32, ...said };
    return { ids, ...checkEnd(op, model, all), sampling: withDefaults(model.generationDefaults, all) };
  });
  return {
    sequences,
    path: checkPath(op, model, options.path),
    timings: checkReport(op, "timings", options.timings),
    signal,
    cache,
    endings,
  };
}

/**
 * Continues several prompts at once, each as `generate` would; yields for every step the new id of each sequence,
 * undefined for those that have ended. The steps of all sequences are one recorded pass.
 *
 * However it ends, each sequence of `state` then holds what it held before, its prompt, and every id that was yielded for
 * it, as with `generate`.
 */
export async function* generateBatch(
  model: LanguageModel,
  prompts: readonly (readonly number[])[],
  options: GenerateBatchOptions = {},
): AsyncGenerator<(number | undefined)[], void, void> {
  const op = "generateBatch";
  const { sequences, path, timings, signal, cache, endings } = check(model, prompts, options);
  const longest = Math.max(...sequences.map(({ ids, maxTokens }) => ids.length + maxTokens));
  const own = options.state
    ? undefined
    : model.newState({ sequences: sequences.length, capacity: Math.min(model.contextLength, longest) });
  const state = options.state ?? (own as NonNullable<typeof own>);
  const ended: (Ending | undefined)[] = sequences.map(() => undefined);
  let otherwise: Ending = { finishReason: "aborted" };
  try {
    using _ = state.begin(op);
    const lengths = sequences.map(({ ids }) => ids.length);
    state.assertRoom(op, lengths, "prompts");
    using steps = new Steps(
      model,
      state,
      sequences.map(({ sampling }) => sampling),
    );
    const watch = new Stopwatch(timings);
    watch.timings.promptTokens = lengths.reduce((sum, length) => sum + length, 0);
    const begins = sequences.map(({ ids }) => ids.slice(0, -1));
    if (begins.some((ids) => ids.length > 0)) {
      const prompt = { path, positions: begins.map(() => []), ...(cache && { cache }), signal };
      const { restored } = await feed(op, model, state, begins, prompt, "prompts");
      watch.timings.cachedTokens = restored.reduce((sum, tokens) => sum + tokens, 0);
    }
    /** Of each sequence what the next step feeds it. */
    let batch = sequences.map(({ ids }) => ids.slice(-1));
    /** Of each sequence the id that was yielded and has not been fed. */
    let unfed: number[][] = batch.map(() => []);
    try {
      signal?.throwIfAborted();
      for (let count = 1; ; count++) {
        const next = await steps.feed(op, batch, "prompts");
        // Sequences that sat out may still have one.
        unfed = unfed.map((ids, at) => (batch[at]?.length ? [] : ids));
        signal?.throwIfAborted();
        watch.lap(count === 1 ? "prefillMs" : "decodeMs");
        const fresh = next.map(([id], at) => {
          if (id === undefined || !sequences[at]?.stopTokens.has(id)) return id;
          ended[at] = { finishReason: "stop", stopToken: id };
          return undefined;
        });
        const generated = fresh.filter((id) => id !== undefined).length;
        if (generated === 0) return;
        watch.timings.generatedTokens += generated;
        unfed = unfed.map((ids, at) => (fresh[at] === undefined ? ids : [fresh[at]]));
        for (const [at, id] of fresh.entries())
          if (id !== undefined && (count === sequences[at]?.maxTokens || state.length(at) === state.capacity))
            ended[at] = { finishReason: "length" };
        batch = fresh.map((id, at) => (id === undefined || ended[at] ? [] : [id]));
        yield fresh;
        signal?.throwIfAborted();
        watch.resume();
        if (batch.every((ids) => ids.length === 0)) return;
      }
    } finally {
      // Whoever goes on with the state finds what was yielded in it, where there is room.
      const rest = unfed.map((ids, at) => (state.length(at) < state.capacity ? ids : []));
      if (!own && state.defined && rest.some((ids) => ids.length > 0)) await steps.feed(op, rest);
    }
  } catch (error) {
    otherwise = { finishReason: signal?.aborted && error === signal.reason ? "aborted" : "error" };
    throw error;
  } finally {
    own?.dispose();
    endings.length = 0;
    endings.push(...ended.map((ending) => ending ?? otherwise));
  }
}
