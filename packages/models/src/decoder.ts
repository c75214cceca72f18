import { checkOptionNames, MlxtsError, printAsJson, type SubmissionResult, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import { withDefaults } from "./generation_config.ts";
import type { LanguageModel } from "./language_model.ts";
import { SAMPLING_OPTIONS, type SamplingOptions } from "./sampling.ts";
import { type CallOptions, signalOf } from "./signal.ts";
import { checkState, type ModelState } from "./state.ts";
import { Steps } from "./steps.ts";
import { checkIds } from "./tokens.ts";

/**
 * Decode steps, recorded once and replayed: a step feeds each sequence one token and gives the next one. A step is one
 * pass: a call that is canceled during it lets it end, so that the state holds its tokens (`state.lengths`), and rejects.
 */
export class Decoder {
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly steps: Steps;
  private gone = false;

  /** `sampling`: options for all sequences of the state, or a list with those of each. */
  constructor(model: LanguageModel, state: ModelState, sampling: SamplingOptions | readonly SamplingOptions[] = {}) {
    const op = "Decoder";
    checkState(op, model, state);
    const { sequences } = state;
    const each = Array.isArray(sampling) ? (sampling as readonly SamplingOptions[]) : Array(sequences).fill(sampling);
    if (each.length !== sequences)
      throw wrongValue(op, "sampling", `have one entry for each of ${sequences} sequences`, each.length);
    this.model = model;
    this.state = state;
    this.steps = new Steps(
      model,
      state,
      Array.from(each, (options) => {
        checkOptionNames(op, options, SAMPLING_OPTIONS);
        return withDefaults(model.generationDefaults, options);
      }),
    );
  }

  /** Dispatches of a step in which all sequences take part. */
  get dispatches(): number {
    return this.steps.dispatches;
  }

  /** Marks the state as in use by `op` until the result is disposed. */
  private begin(op: string): Disposable {
    if (this.gone) throw new MlxtsError("Disposed", "the decoder has been disposed", { what: "decoder" });
    return this.state.begin(op);
  }

  /** Feeds one token and returns the next. For a state of one sequence. */
  async next(id: number, options: CallOptions = {}): Promise<number> {
    const op = "decoder.next";
    const signal = signalOf(op, options);
    this.state.assertSingle(op, "use nextBatch");
    checkIds(op, this.model, [id]);
    using _ = this.begin(op);
    const next = await this.steps.next(op, id);
    signal?.throwIfAborted();
    return next;
  }

  /**
   * Feeds `id`, then each token that follows, `count` in all; returns the token that follows each, the last one not fed:
   * what `count` calls of `next` would have returned, but sooner, since a step may begin before the host has read the last
   * one's token. When it is canceled, the state holds the steps that ran. For a state of one sequence.
   */
  async nextMany(id: number, count: number, options: CallOptions = {}): Promise<number[]> {
    const op = "decoder.nextMany";
    const signal = signalOf(op, options);
    this.state.assertSingle(op, "use nextBatch");
    checkIds(op, this.model, [id]);
    checkInteger(op, "count", count, 1, this.state.capacity);
    using _ = this.begin(op);
    return await this.steps.nextMany(op, id, count, signal);
  }

  /** Feeds each sequence one token and returns the next of each. A sequence with undefined is not fed and gets undefined. */
  async nextBatch(ids: readonly (number | undefined)[], options: CallOptions = {}): Promise<(number | undefined)[]> {
    const op = "decoder.nextBatch";
    const signal = signalOf(op, options);
    const { sequences } = this.state;
    if (!Array.isArray(ids)) throw wrongKind(op, "ids", "be an array of token ids", ids);
    if (ids.length !== sequences)
      throw wrongValue(op, "ids", `have one entry for each of the state's ${sequences} sequences`, ids.length);
    const each: (number | undefined)[] = Array.from(ids);
    checkIds(op, this.model, each.filter((id) => id !== undefined) as number[]);
    using _ = this.begin(op);
    const batch = each.map((id) => (id === undefined ? [] : [id]));
    const next = await this.steps.feed(op, batch);
    signal?.throwIfAborted();
    return next.map(([id]) => id);
  }

  /**
   * Feeds `id` and `draft`, a guess at the tokens that follow it, in one pass. Returns the tokens that `next` would have
   * returned one by one: the right ones of the guess, and the one after them. The wrong ones are rolled back. For a state
   * of one sequence, made with a `rollback` of at least the length of the guess.
   */
  async speculate(id: number, draft: readonly number[], options: CallOptions = {}): Promise<number[]> {
    const op = "decoder.speculate";
    const signal = signalOf(op, options);
    this.state.assertSingle(op, "guess for one sequence");
    checkIds(op, this.model, [id], "id");
    const guess = checkIds(op, this.model, draft, "draft", true);
    checkInteger(op, "draft.length", guess.length, 0, this.state.maxRollback);
    using _ = this.begin(op);
    const next = await this.steps.speculate(op, id, guess);
    signal?.throwIfAborted();
    return next;
  }

  /** Feeds one token and returns the times of the step's dispatches. */
  async profile(id: number): Promise<SubmissionResult> {
    const op = "decoder.profile";
    this.state.assertSingle(op, "profile one sequence");
    checkIds(op, this.model, [id]);
    using _ = this.begin(op);
    return (await this.steps.run(op, [[id]], "ids", true)).result;
  }

  get disposed(): boolean {
    return this.gone;
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { state, gone } = this;
    const dispatches = gone ? 0 : this.dispatches;
    return { type: "Decoder", state: state.toJSON(), dispatches, disposed: gone };
  }

  dispose(): void {
    this.gone = true;
    this.steps.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

printAsJson(Decoder);
