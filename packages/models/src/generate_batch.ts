import { checkOptionNames, checkSignal, type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import {
  COMMON_OPTIONS,
  type CommonOptions,
  checkEnd,
  checkReport,
  type Ending,
  type EndOptions,
  endingOf,
  feedPrompts,
  Stopwatch,
} from "./generation.ts";
import { withDefaults } from "./generation_config.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import { checkPrompts } from "./prefill.ts";
import { checkCache } from "./prefix_cache.ts";
import { SAMPLING_OPTIONS, type SamplingOptions } from "./sampling.ts";
import { checkState, type ModelState } from "./state.ts";
import { Steps } from "./steps.ts";

/** Options that can differ between the sequences of a batch. */
type SequenceOptions = SamplingOptions & EndOptions;

/** Options of `generateBatch`. */
export interface GenerateBatchOptions extends CommonOptions {
  /** For each sequence the options that differ from the common ones. Default of its seed: `seed` plus its index. */
  each?: readonly SequenceOptions[];
  /** Filled in when the generation ends: for each sequence why its text ended. */
  endings?: Partial<Ending>[];
}

const OP = "generateBatch";
const BATCH_OPTIONS: OptionNames<GenerateBatchOptions> = { ...COMMON_OPTIONS, each: true, endings: true };
const SEQUENCE_OPTIONS: OptionNames<SequenceOptions> = { ...SAMPLING_OPTIONS, maxTokens: true, stopTokens: true };

/** Checks the arguments that can be wrong by themselves, and completes them. */
function check(model: LanguageModel, prompts: readonly (readonly number[])[], options: GenerateBatchOptions) {
  const op = OP;
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

type Sequence = ReturnType<typeof check>["sequences"][number];

/** The texts of a batch, and what its state holds of them. */
class GeneratedTexts {
  /** For each sequence the ids that the next step feeds it: one, or none when its text has ended. */
  batch: readonly (readonly number[])[];
  /** For each sequence how its text ended. */
  readonly endings: (Ending | undefined)[];
  private readonly sequences: readonly Sequence[];
  private readonly state: ModelState;
  private readonly steps: Steps;
  /** For each sequence the id that was yielded and has not been fed. */
  private unfed: readonly (readonly number[])[];
  private count = 0;

  constructor(sequences: readonly Sequence[], state: ModelState, steps: Steps) {
    this.sequences = sequences;
    this.state = state;
    this.steps = steps;
    this.batch = sequences.map(({ ids }) => ids.slice(-1));
    this.unfed = sequences.map(() => []);
    this.endings = sequences.map(() => undefined);
  }

  /** Feeds each sequence its next id; returns the ids that follow. */
  async step(): Promise<(number | undefined)[]> {
    const ran = await this.steps.run(OP, this.batch, "prompts");
    // A sequence whose text has ended took no part in the step; its last id is still to be fed.
    this.unfed = this.unfed.map((ids, at) => (this.batch[at]?.length ? [] : ids));
    this.count++;
    return ran.ids().map(([id]) => id);
  }

  /** Adds ids to the texts, and notes which texts end with them. The result lacks the stop tokens. */
  add(next: readonly (number | undefined)[]): (number | undefined)[] {
    const { sequences, endings, state } = this;
    const added = next.map((id, at) => {
      if (id === undefined || !sequences[at]?.stopTokens.has(id)) return id;
      endings[at] = { finishReason: "stop", stopToken: id };
      return undefined;
    });
    this.unfed = this.unfed.map((ids, at) => (added[at] === undefined ? ids : [added[at]]));
    for (const [at, id] of added.entries())
      if (id !== undefined && (this.count === sequences[at]?.maxTokens || state.length(at) === state.capacity))
        endings[at] = { finishReason: "length" };
    this.batch = added.map((id, at) => (id === undefined || endings[at] ? [] : [id]));
    return added;
  }

  /** Makes the state hold what was yielded; a last id only where there is room for it. */
  async settle(): Promise<void> {
    const { state } = this;
    if (!state.defined) return;
    const rest = this.unfed.map((ids, at) => (state.length(at) < state.capacity ? ids : []));
    if (rest.some((ids) => ids.length > 0)) await this.steps.run(OP, rest);
  }
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
  const { sequences, path, timings, signal, cache, endings } = check(model, prompts, options);
  const longest = Math.max(...sequences.map(({ ids, maxTokens }) => ids.length + maxTokens));
  const own = options.state
    ? undefined
    : model.newState({ sequences: sequences.length, capacity: Math.min(model.contextLength, longest) });
  const state = options.state ?? (own as NonNullable<typeof own>);
  /** How the texts end that have not ended by themselves. */
  let otherwise: Ending = { finishReason: "aborted" };
  let ended: readonly (Ending | undefined)[] = sequences.map(() => undefined);
  try {
    using _ = state.begin(OP);
    const batch = sequences.map(({ ids }) => ids);
    state.assertRoom(
      OP,
      batch.map(({ length }) => length),
      "prompts",
    );
    using steps = new Steps(
      model,
      state,
      sequences.map(({ sampling }) => sampling),
    );
    const watch = new Stopwatch(timings);
    await feedPrompts(batch, { op: OP, argument: "prompts", model, state, path, cache, signal, watch });
    const texts = new GeneratedTexts(sequences, state, steps);
    ended = texts.endings;
    let lap: "prefillMs" | "decodeMs" = "prefillMs";
    try {
      signal?.throwIfAborted();
      do {
        const next = await texts.step();
        signal?.throwIfAborted();
        watch.lap(lap);
        lap = "decodeMs";
        const added = texts.add(next);
        const count = added.filter((id) => id !== undefined).length;
        if (count === 0) return;
        watch.timings.generatedTokens += count;
        yield added;
        signal?.throwIfAborted();
        watch.resume();
      } while (texts.batch.some((ids) => ids.length > 0));
    } finally {
      if (!own) await texts.settle();
    }
  } catch (error) {
    otherwise = endingOf(error, signal);
    throw error;
  } finally {
    own?.dispose();
    endings.length = 0;
    endings.push(...ended.map((ending) => ending ?? otherwise));
  }
}
