import { checkCallback, checkOptionNames, checkSignal, type OptionNames, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import type { Draft } from "./draft.ts";
import {
  COMMON_OPTIONS,
  type CommonOptions,
  checkEnd,
  checkReport,
  type Ending,
  endingOf,
  feedPrompts,
  Stopwatch,
} from "./generation.ts";
import { withDefaults } from "./generation_config.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import { checkCache } from "./prefix_cache.ts";
import { checkState, type ModelState } from "./state.ts";
import { Steps } from "./steps.ts";
import { checkIds } from "./tokens.ts";

/** Options of `generate`. */
export interface GenerateOptions extends CommonOptions {
  /** Guesses the next tokens, see `promptLookup`. The text does not depend on it; it comes sooner when guesses are right. */
  draft?: Draft;
  /** The most tokens of a guess. Default: the `rollback` of `state`, or 4 without a `state`. */
  draftTokens?: number;
  /** Filled in when the generation ends: why it did. */
  ending?: Partial<Ending>;
}

const OP = "generate";
const GENERATE_OPTIONS: OptionNames<GenerateOptions> = {
  ...COMMON_OPTIONS,
  draft: true,
  draftTokens: true,
  ending: true,
};

/** Checks the arguments that can be wrong by themselves, and completes them. */
function check(model: LanguageModel, ids: readonly number[], options: GenerateOptions) {
  const op = OP;
  checkOptionNames(op, options, GENERATE_OPTIONS);
  const { state, draft, signal, cache } = options;
  checkSignal(op, signal);
  checkCache(op, model, cache);
  if (state !== undefined) checkState(op, model, state);
  state?.assertSingle(op, "use generateBatch");
  checkCallback(op, "draft", draft);
  if (draft && state?.maxRollback === 0)
    throw wrongValue(op, "state", "be made with `rollback` when there is a `draft`", "a state without it");
  const guess = draft ? (options.draftTokens ?? state?.maxRollback ?? Math.min(4, model.maxRollback)) : 0;
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

type Settings = ReturnType<typeof check>;

/** The text of a generation, and what the state holds of it. */
class GeneratedText {
  /** The prompt and the ids that were yielded. */
  private readonly ids: number[];
  private count = 0;
  /** How many tokens the state held before the prompt. */
  private readonly before: number;
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly steps: Steps;
  private readonly settings: Settings;
  /** Whether the state ends with the generation. */
  private readonly own: boolean;
  private readonly watch: Stopwatch;
  /** Filled in. */
  private readonly end: Ending;

  constructor(
    model: LanguageModel,
    state: ModelState,
    steps: Steps,
    settings: Settings,
    own: boolean,
    watch: Stopwatch,
    end: Ending,
  ) {
    this.ids = [...settings.prompt];
    // All of the prompt but its last token has been fed.
    this.before = state.tokens - (settings.prompt.length - 1);
    this.model = model;
    this.state = state;
    this.steps = steps;
    this.settings = settings;
    this.own = own;
    this.watch = watch;
    this.end = end;
  }

  /** How many tokens the state holds beyond the last one of the text; −1 when that one has not been fed yet. */
  private get ahead(): number {
    return this.state.tokens - this.before - this.ids.length;
  }

  /** A guess at the next ids, no longer than can be of use: a pass gives one id more than was guessed right. */
  private guess(): readonly number[] {
    const { draft, guess, maxTokens } = this.settings;
    const most = Math.min(guess, maxTokens - this.count - 1, this.state.capacity - this.state.tokens - 1);
    return draft && most > 0 ? checkIds(OP, this.model, draft([...this.ids], most), "draft", true).slice(0, most) : [];
  }

  /** Feeds the last id, and a guess if there is one; returns the ids that follow. */
  async step(): Promise<readonly number[]> {
    const { signal } = this.settings;
    const { watch } = this;
    const guess = this.guess();
    const next = await this.feed(this.ids.at(-1) as number, guess);
    signal?.throwIfAborted();
    watch.lap(this.count === 0 ? "prefillMs" : "decodeMs");
    watch.timings.draftedTokens += guess.length;
    watch.timings.acceptedTokens += next.length - 1;
    return next;
  }

  private async feed(last: number, guess: readonly number[]): Promise<readonly number[]> {
    const { steps, own } = this;
    const { draft, maxTokens } = this.settings;
    if (guess.length > 0) return await steps.speculate(OP, last, guess);
    if (!own || draft) return [await steps.next(OP, last)];
    return [await steps.nextOfMany(OP, last, maxTokens - this.count - 1)];
  }

  /** Adds an id to the text; false when it is a stop token, which ends the text and is not added. */
  add(id: number): boolean {
    const { stopTokens, maxTokens } = this.settings;
    if (stopTokens.has(id)) {
      Object.assign(this.end, { finishReason: "stop", stopToken: id });
      return false;
    }
    this.ids.push(id);
    this.count++;
    this.watch.timings.generatedTokens = this.count;
    const isFull = this.ahead < 0 && this.state.tokens === this.state.capacity;
    if (this.count === maxTokens || isFull) this.end.finishReason = "length";
    return true;
  }

  /** Makes the caller's state hold what was yielded, no less and no more; the last id only where there is room for it. */
  async settle(): Promise<void> {
    const { state } = this;
    if (this.own) return await this.steps.stop();
    if (!state.defined) return;
    const { ahead, count } = this;
    if (ahead > 0) await state.runRollbacks([ahead]);
    else if (ahead < 0 && count > 0 && state.tokens < state.capacity)
      await this.steps.run(OP, [[this.ids.at(-1) as number]]);
  }
}

/**
 * Yields new token ids one by one, until a stop token (not yielded), `maxTokens`, or the end of the context.
 *
 * However it ends, `state` then holds what it held before, `ids`, and every id that was yielded. Two exceptions: a last id
 * for which the context has no room is not fed; a generation that ends before its first id leaves the tokens of the prompt
 * whose passes ran. When it is canceled, the pass in flight ends first, then the signal's reason is thrown. A generator
 * that is dropped half-way keeps its state in use: end it with `return()`, or with a `break` out of `for await`.
 */
export async function* generate(
  model: LanguageModel,
  ids: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const settings = check(model, ids, options);
  const { prompt, maxTokens, path, sampling, timings, ending, guess, signal, cache } = settings;
  const own = options.state
    ? undefined
    : model.newState({ capacity: Math.min(model.contextLength, prompt.length + maxTokens), rollback: guess });
  const state = options.state ?? (own as NonNullable<typeof own>);
  let end: Ending = { finishReason: "aborted" };
  try {
    using _ = state.begin(OP);
    state.assertRoom(OP, [prompt.length]);
    using steps = new Steps(model, state, [sampling]);
    const watch = new Stopwatch(timings);
    await feedPrompts([prompt], { op: OP, argument: "ids", model, state, path, cache, signal, watch });
    const text = new GeneratedText(model, state, steps, settings, own !== undefined, watch, end);
    try {
      signal?.throwIfAborted();
      do {
        for (const id of await text.step()) {
          if (!text.add(id)) return;
          yield id;
          signal?.throwIfAborted();
        }
        watch.resume();
      } while (end.finishReason !== "length");
    } finally {
      await text.settle();
    }
  } catch (error) {
    end = endingOf(error, signal);
    throw error;
  } finally {
    own?.dispose();
    delete ending.stopToken;
    Object.assign(ending, end);
  }
}
