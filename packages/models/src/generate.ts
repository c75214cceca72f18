import { checkOptionNames, checkSignal, type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import type { Draft } from "./draft.ts";
import { feed } from "./feed.ts";
import { COMMON_OPTIONS, type CommonOptions, checkEnd, checkReport, type Ending, Stopwatch } from "./generation.ts";
import { withDefaults } from "./generation_config.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import { checkCache } from "./prefix_cache.ts";
import { checkState } from "./state.ts";
import { Steps } from "./steps.ts";
import { checkIds } from "./tokens.ts";

/** Options of `generate`. */
export interface GenerateOptions extends CommonOptions {
  /** Guesses tokens to be tried together, see `promptLookup`. The text is the same, and comes sooner if they are right. */
  draft?: Draft;
  /** The most tokens of a guess. Default 4, or the `rollback` of `state`. */
  draftTokens?: number;
  /** Filled in when the generation ends: why it did. */
  ending?: Partial<Ending>;
}

const GENERATE_OPTIONS: OptionNames<GenerateOptions> = {
  ...COMMON_OPTIONS,
  draft: true,
  draftTokens: true,
  ending: true,
};

/** All of the options that can be wrong by themselves. */
function check(model: LanguageModel, ids: readonly number[], options: GenerateOptions) {
  const op = "generate";
  checkOptionNames(op, options, GENERATE_OPTIONS);
  const { state, draft, signal, cache } = options;
  checkSignal(op, signal);
  checkCache(op, model, cache);
  if (state !== undefined) checkState(op, model, state);
  state?.assertSingle(op, "use generateBatch");
  if (draft !== undefined && typeof draft !== "function") throw wrongKind(op, "draft", "be a function", draft);
  if (draft && state?.maxRollback === 0)
    throw wrongValue(op, "state", "be made with `rollback` when there is a `draft`", "a state without it");
  const guess = draft ? (options.draftTokens ?? state?.maxRollback ?? 4) : 0;
  if (draft) checkInteger(op, "draftTokens", guess, 1, state?.maxRollback ?? model.maxRollback);
  return {
    prompt: checkIds(op, model, ids),
    ...checkEnd(op, model, options),
    path: checkPath(op, model, options.path),
    sampling: withDefaults(model.generationDefaults, options),
    timings: checkReport(op, "timings", options.timings),
    ending: checkReport(op, "ending", options.ending) ?? {},
    guess,
    draft,
    signal,
    cache,
  };
}

/**
 * Yields new token ids one by one, until a stop token (not yielded), `maxTokens`, or the end of the context.
 *
 * However it ends, `state` then holds what it held before, `ids`, and every id that was yielded; but a last id for which
 * the context has no room is not fed, and a generation that ends before its first id leaves what passes of the prompt had
 * run. Canceled, it ends the pass in flight and throws the signal's reason. A generator that
 * is dropped half-way keeps its state in use: end it with `return()`, or with a `break` out of `for await`.
 */
export async function* generate(
  model: LanguageModel,
  ids: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const op = "generate";
  const { prompt, maxTokens, stopTokens, path, sampling, timings, ending, guess, draft, signal, cache } = check(
    model,
    ids,
    options,
  );
  const own = options.state
    ? undefined
    : model.newState({ capacity: Math.min(model.contextLength, prompt.length + maxTokens), rollback: guess });
  const state = options.state ?? (own as NonNullable<typeof own>);
  let end: Ending = { finishReason: "aborted" };
  try {
    using _ = state.begin(op);
    state.assertRoom(op, [prompt.length]);
    using steps = new Steps(model, state, [sampling]);
    const watch = new Stopwatch(timings);
    watch.timings.promptTokens = prompt.length;
    if (prompt.length > 1) {
      const { restored } = await feed(
        op,
        model,
        state,
        [prompt.slice(0, -1)],
        { path, positions: [[]], ...(cache && { cache }), signal },
        "ids",
      );
      watch.timings.cachedTokens = restored[0] as number;
    }
    const text = [...prompt];
    let last = text.at(-1) as number;
    /** Tokens that the state holds beyond the last one yielded; −1: that one is still to be fed. */
    let ahead = 0;
    try {
      signal?.throwIfAborted();
      for (let count = 0; ; ) {
        // No more than can be of use: each pass gives one token more than was guessed right.
        const most = Math.min(guess, maxTokens - count - 1, state.capacity - state.tokens - 1);
        const guessed = draft && most > 0 ? checkIds(op, model, draft(text, most), "draft", true).slice(0, most) : [];
        const next = guessed.length > 0 ? await steps.speculate(op, last, guessed) : [await steps.next(op, last)];
        ahead = next.length - 1;
        signal?.throwIfAborted();
        watch.lap(count === 0 ? "prefillMs" : "decodeMs");
        watch.timings.draftedTokens += guessed.length;
        watch.timings.acceptedTokens += next.length - 1;
        for (const id of next) {
          if (stopTokens.has(id)) {
            end = { finishReason: "stop", stopToken: id };
            return;
          }
          watch.timings.generatedTokens = ++count;
          text.push(id);
          last = id;
          ahead--;
          if (count === maxTokens || (ahead < 0 && state.tokens === state.capacity)) end = { finishReason: "length" };
          yield id;
          signal?.throwIfAborted();
        }
        watch.resume();
        if (end.finishReason === "length") return;
      }
    } finally {
      // Whoever goes on with the state finds what was yielded in it, no less and no more.
      if (!own && state.defined) {
        if (ahead > 0) await state.takeBack([ahead]);
        else if (ahead < 0 && state.tokens < state.capacity) await steps.next(op, last);
      }
    }
  } catch (error) {
    end = { finishReason: signal?.aborted && error === signal.reason ? "aborted" : "error" };
    throw error;
  } finally {
    own?.dispose();
    delete ending.stopToken;
    Object.assign(ending, end);
  }
}
