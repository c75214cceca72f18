import { wrongValue } from "@mlxts/core";
import { Decoder, type SamplingOptions } from "./decoder.ts";
import type { Draft } from "./draft.ts";
import type { DeltaPath, LanguageModel } from "./model.ts";
import { checkPrompts, feed } from "./prefill.ts";
import type { PrefixCache } from "./prefix_cache.ts";
import { checkInteger, type ModelState } from "./state.ts";
import { checkIds } from "./tokens.ts";

/** What both forms of generation take. */
interface CommonOptions extends SamplingOptions {
  /** New tokens of a sequence. Default 128. */
  maxTokens?: number;
  /** Ids that end the text. Default: the model's. */
  stopTokens?: readonly number[];
  path?: DeltaPath;
  /** Continues this state instead of an empty one. */
  state?: ModelState;
  /** See `prefill`. */
  cache?: PrefixCache;
  /** Filled in when the generation ends. */
  timings?: Partial<Timings>;
}

/** Options of `generate`. */
export interface GenerateOptions extends CommonOptions {
  /** Guesses tokens to be tried together, see `promptLookup`. The text is the same, and comes sooner if they are right. */
  draft?: Draft;
  /** The most tokens of a guess. Default 4, or the `rollback` of `state`. */
  draftTokens?: number;
}

/** Options of `generateBatch`. */
export interface GenerateBatchOptions extends CommonOptions {
  /** What is different for each sequence. Seeds not given here: `seed` and the sequence's number added. */
  each?: readonly (SamplingOptions & Pick<CommonOptions, "maxTokens" | "stopTokens">)[];
}

/** What a generation took, in tokens and milliseconds; `prefillMs` reaches to the first new token. */
export interface Timings {
  promptTokens: number;
  /** Of these, those that the cache had. */
  cachedTokens: number;
  prefillMs: number;
  generatedTokens: number;
  decodeMs: number;
  /** Tokens that were guessed, and those of them that were right. */
  draftedTokens: number;
  acceptedTokens: number;
}

const NO_TIME: Timings = {
  promptTokens: 0,
  cachedTokens: 0,
  prefillMs: 0,
  generatedTokens: 0,
  decodeMs: 0,
  draftedTokens: 0,
  acceptedTokens: 0,
};

/** Adds the time since the last call, or since `resume`. */
class Stopwatch {
  private readonly timings: Partial<Timings>;
  private last = performance.now();

  constructor(timings: Partial<Timings>) {
    this.timings = Object.assign(timings, NO_TIME);
  }

  lap(key: "prefillMs" | "decodeMs"): void {
    const now = performance.now();
    this.timings[key] = (this.timings[key] ?? 0) + now - this.last;
    this.last = now;
  }

  resume(): void {
    this.last = performance.now();
  }
}

/** Yields new token ids one by one, until a stop token (not yielded), `maxTokens`, or the end of the context. */
export async function* generate(
  model: LanguageModel,
  ids: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const op = "generate";
  const { maxTokens = 128, stopTokens = model.stopTokens, timings = {}, draft, cache, path = "auto" } = options;
  checkIds(op, model, ids);
  checkInteger(op, "maxTokens", maxTokens, 1);
  options.state?.assertSingle(op, "use generateBatch");
  const guess = draft ? (options.draftTokens ?? options.state?.maxRollback ?? 4) : 0;
  if (draft && options.state?.maxRollback === 0)
    throw wrongValue(op, "state", "be made with `rollback` when there is a `draft`", "a state without it");
  if (draft) checkInteger(op, "draftTokens", guess, 1, options.state?.maxRollback ?? 64);
  const state =
    options.state ??
    model.newState({ capacity: Math.min(model.contextLength, ids.length + maxTokens), rollback: guess });
  let ahead = 0;
  try {
    state.assertRoom(op, [ids.length]);
    using decoder = new Decoder(model, state, options);
    const watch = new Stopwatch(timings);
    timings.promptTokens = ids.length;
    if (ids.length > 1) {
      const prompt = { path, positions: [[]], ...(cache && { cache }) };
      const { restored } = await feed(op, model, state, [ids.slice(0, -1)], prompt, "ids");
      timings.cachedTokens = restored[0] as number;
    }
    const text = [...ids];
    for (let count = 0; ; ) {
      // No more than can be of use: each pass gives one token more than was guessed right.
      const most = Math.min(guess, maxTokens - count - 1, state.capacity - state.tokens - 1);
      const guessed = draft && most > 0 ? draft(text, most).slice(0, most) : [];
      const last = text.at(-1) as number;
      const next = guessed.length > 0 ? await decoder.speculate(last, guessed) : [await decoder.next(last)];
      watch.lap(count === 0 ? "prefillMs" : "decodeMs");
      timings.draftedTokens = (timings.draftedTokens ?? 0) + guessed.length;
      timings.acceptedTokens = (timings.acceptedTokens ?? 0) + next.length - 1;
      for (const [i, id] of next.entries()) {
        ahead = next.length - 1 - i;
        if (stopTokens.includes(id)) return;
        timings.generatedTokens = ++count;
        text.push(id);
        yield id;
      }
      watch.resume();
      if (count === maxTokens || state.tokens === state.capacity) return;
    }
  } finally {
    // Whoever goes on with the state finds it as single steps would have left it.
    if (!options.state) state.dispose();
    else if (ahead > 0) await state.rollback(ahead);
  }
}

/**
 * Continues several prompts at once, each as `generate` would; yields for every step the new id of each sequence,
 * undefined for those that have ended. The steps of all sequences are one recorded pass.
 */
export async function* generateBatch(
  model: LanguageModel,
  prompts: readonly (readonly number[])[],
  options: GenerateBatchOptions = {},
): AsyncGenerator<(number | undefined)[], void, void> {
  const op = "generateBatch";
  const { each, timings = {}, cache, path = "auto", seed = 0 } = options;
  checkPrompts(op, model, options.state, prompts);
  for (const [at, ids] of prompts.entries()) checkIds(op, model, ids, `prompts[${at}]`);
  if (each && each.length !== prompts.length)
    throw wrongValue(op, "each", `have one entry for each of the ${prompts.length} prompts`, each.length);
  const settings = prompts.map((_, at) => {
    const { maxTokens = 128, stopTokens = model.stopTokens } = { ...options, ...each?.[at] };
    checkInteger(op, "maxTokens", maxTokens, 1);
    return { maxTokens, stopTokens, ...options, seed: (seed + at) % 2 ** 32, ...each?.[at] };
  });
  const longest = Math.max(...prompts.map((ids, at) => ids.length + (settings[at]?.maxTokens as number)));
  const capacity = Math.min(model.contextLength, longest);
  const state = options.state ?? model.newState({ sequences: prompts.length, capacity });
  try {
    state.assertRoom(
      op,
      prompts.map((ids) => ids.length),
      "prompts",
    );
    using decoder = new Decoder(model, state, settings);
    const watch = new Stopwatch(timings);
    timings.promptTokens = prompts.reduce((sum, ids) => sum + ids.length, 0);
    const begins = prompts.map((ids) => ids.slice(0, -1));
    if (begins.some((ids) => ids.length > 0)) {
      const prompt = { path, positions: begins.map(() => []), ...(cache && { cache }) };
      const { restored } = await feed(op, model, state, begins, prompt, "prompts");
      timings.cachedTokens = restored.reduce((sum, tokens) => sum + tokens, 0);
    }
    let ids: (number | undefined)[] = prompts.map((prompt) => prompt.at(-1));
    for (let count = 1; ; count++) {
      const next = await decoder.nextBatch(ids);
      watch.lap(count === 1 ? "prefillMs" : "decodeMs");
      const fresh = next.map((id, at) => {
        const { stopTokens = [] } = settings[at] ?? {};
        return id === undefined || stopTokens.includes(id) ? undefined : id;
      });
      const generated = fresh.filter((id) => id !== undefined).length;
      if (generated === 0) return;
      timings.generatedTokens = (timings.generatedTokens ?? 0) + generated;
      yield fresh;
      watch.resume();
      ids = fresh.map((id, at) => {
        const { maxTokens = 0 } = settings[at] ?? {};
        return count === maxTokens || state.length(at) === state.capacity ? undefined : id;
      });
      if (ids.every((id) => id === undefined)) return;
    }
  } finally {
    if (!options.state) state.dispose();
  }
}
