import {
  type Arena,
  type ArenaMark,
  type Recording,
  type SubmissionResult,
  type Tensor,
  wrongValue,
} from "@mlxts/core";
import { argmax, sample } from "@mlxts/nn";
import { withDefaults } from "./generation_config.ts";
import type { LanguageModel } from "./model.ts";
import { checkInteger, type ModelState } from "./state.ts";
import { checkIds, PassTokens } from "./tokens.ts";

/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0: always the most likely token. Default of these three: the model's `generationDefaults`. */
  temperature?: number;
  /** Consider only the k most likely tokens; 0: all. */
  topK?: number;
  /** Consider only the most likely tokens that reach this probability together; 1: all. */
  topP?: number;
  /** Default 0. The same seed gives the same text. */
  seed?: number;
}

/** A pass recorded for so many tokens of each sequence, and where its random streams are. */
interface Step {
  tokens: PassTokens;
  places: Tensor<"u32">;
  recording: Recording;
}

function release({ recording, tokens, places }: Step): void {
  recording.dispose();
  tokens.dispose();
  places.dispose();
}

/** Recordings that are kept: for lengths of guesses, and for sequences that sit out. */
const MOST_STEPS = 32;

/** Decode steps recorded once and replayed: one call from JavaScript, a token out for each token in. */
export class Decoder {
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly sampling: readonly SamplingOptions[];
  /** No sequence draws: the likeliest token of all rows at once. */
  private readonly greedy: boolean;
  private readonly arena: Arena;
  private readonly begin: ArenaMark;
  private readonly steps = new Map<string, Step>();
  private readonly whole: Step;
  /** Tokens that each sequence has drawn. */
  private readonly drawn: number[];

  /** `sampling` for all sequences of the state, or for each its own. */
  constructor(model: LanguageModel, state: ModelState, sampling: SamplingOptions | readonly SamplingOptions[] = {}) {
    const { sequences } = state;
    const each = Array.isArray(sampling) ? (sampling as readonly SamplingOptions[]) : undefined;
    if (each && each.length !== sequences)
      throw wrongValue("Decoder", "sampling", `have one entry for each of ${sequences} sequences`, each.length);
    this.model = model;
    this.state = state;
    const given: readonly SamplingOptions[] = each ?? Array(sequences).fill(sampling);
    this.sampling = given.map((own) => withDefaults(model.generationDefaults, own));
    this.greedy = this.sampling.every(
      ({ temperature = 0, topK = 0, topP = 1 }) => temperature === 0 && topK === 0 && topP === 1,
    );
    this.drawn = Array(sequences).fill(0);
    this.arena = model.device.arena(1 << 20, { grow: true });
    this.begin = this.arena.mark();
    try {
      this.whole = this.step(Array(sequences).fill(1));
    } catch (error) {
      this.arena.dispose();
      throw error;
    }
  }

  private step(counts: readonly number[]): Step {
    const key = counts.join();
    const known = this.steps.get(key);
    if (known) return known;
    if (this.steps.size === MOST_STEPS)
      for (const [oldest, step] of this.steps)
        if (step !== this.whole) {
          this.steps.delete(oldest);
          release(step);
          break;
        }
    const { device } = this.model;
    const tokens = new PassTokens(device, counts);
    const places = device.tensor("u32", [tokens.tokens.ids.size]);
    try {
      const step = { tokens, places, recording: this.record(tokens, places) };
      this.steps.set(key, step);
      return step;
    } catch (error) {
      tokens.dispose();
      places.dispose();
      throw error;
    }
  }

  private record({ tokens, counts }: PassTokens, places: Tensor): Recording {
    // Recordings share their scratch: they run one after the other.
    this.arena.rewind(this.begin);
    // Disposed when an op refuses its arguments; after `finish` there is nothing left to dispose.
    using encoder = this.model.device.encoder({ arena: this.arena });
    const log = this.state.maxRollback > 0;
    const hidden = this.model.encode(encoder, this.state, tokens, { path: "recurrent", log });
    const { ids } = tokens;
    const logits = this.model.encodeLogits(encoder, hidden, [...Array(ids.size).keys()]);
    // The next ids replace those that were fed.
    if (this.greedy) argmax(encoder, { logits, ids });
    else {
      // Each token by itself: its random numbers depend on its seed and place, not on what is beside it.
      const rows = counts.flatMap((count, at) => Array<SamplingOptions>(count).fill(this.sampling[at] ?? {}));
      for (const [row, { temperature = 0, topK = 0, topP = 1, seed = 0 }] of rows.entries()) {
        const own = (t: Tensor) => t.slice(row, row + 1);
        sample(encoder, { logits: own(logits), step: own(places), ids: own(ids) }, { temperature, topK, topP, seed });
      }
    }
    return encoder.finish();
  }

  /** Dispatches of one step of all sequences. */
  get dispatches(): number {
    return this.whole.recording.dispatches;
  }

  /** Runs the step of so many tokens of each sequence. */
  private async run(
    op: string,
    batch: readonly (readonly number[])[],
    argument = "ids",
    profile = false,
  ): Promise<{ ids: Tensor; result: SubmissionResult }> {
    const counts = batch.map((ids) => ids.length);
    this.state.assertRoom(op, counts, argument);
    const { tokens, places, recording } = this.step(counts);
    tokens.write(this.state, batch);
    if (!this.greedy)
      places.write(
        counts.flatMap((count, at) => Array.from({ length: count }, (_, i) => (this.drawn[at] as number) + i)),
      );
    const result = await recording.replay({ profile });
    this.state.advance(counts, this.state.maxRollback > 0);
    for (let at = 0; at < counts.length; at++) this.drawn[at] = (this.drawn[at] as number) + (counts[at] as number);
    return { ids: tokens.tokens.ids, result };
  }

  private async feed(op: string, batch: readonly (readonly number[])[], argument?: string): Promise<number[][]> {
    const { ids } = await this.run(op, batch, argument);
    const next = ids.readSync() as Uint32Array;
    let row = 0;
    return batch.map(({ length }) => {
      row += length;
      return Array.from(next.subarray(row - length, row));
    });
  }

  /** Feeds one token and returns the next; for a state of one sequence. */
  async next(id: number): Promise<number> {
    const op = "decoder.next";
    this.state.assertSingle(op, "use nextBatch");
    checkIds(op, this.model, [id]);
    const { ids } = await this.run(op, [[id]]);
    return ids.readSync()[0] as number;
  }

  /** Feeds each sequence one token and returns the next of each; a sequence with undefined sits out, and has none. */
  async nextBatch(ids: readonly (number | undefined)[]): Promise<(number | undefined)[]> {
    const op = "decoder.nextBatch";
    const { sequences } = this.state;
    if (!Array.isArray(ids) || ids.length !== sequences)
      throw wrongValue(op, "ids", `have one entry for each of the state's ${sequences} sequences`, ids?.length);
    checkIds(
      op,
      this.model,
      ids.filter((id) => id !== undefined),
    );
    const next = await this.feed(
      op,
      ids.map((id) => (id === undefined ? [] : [id])),
    );
    return next.map(([id]) => id);
  }

  /**
   * Feeds `id` and, in the same pass, a guess at what follows; returns the tokens that `next` would have given one by
   * one: those of the guess that are right, and the one after them. What was wrong is taken back. For a state of one
   * sequence with `rollback` of at least the length of the guess.
   */
  async speculate(id: number, draft: readonly number[]): Promise<number[]> {
    const op = "decoder.speculate";
    this.state.assertSingle(op, "guess for one sequence");
    checkIds(op, this.model, [id], "id");
    checkIds(op, this.model, draft, "draft", true);
    checkInteger(op, "draft.length", draft.length, 0, this.state.maxRollback);
    const [next] = (await this.feed(op, [[id, ...draft]], "draft")) as [number[]];
    let right = 0;
    while (right < draft.length && next[right] === draft[right]) right++;
    const wrong = draft.length - right;
    this.drawn[0] = (this.drawn[0] as number) - wrong;
    await this.state.rollback(wrong);
    return next.slice(0, right + 1);
  }

  /** Feeds one token and returns what the step took on the device, dispatch by dispatch. */
  async profile(id: number): Promise<SubmissionResult> {
    const op = "decoder.profile";
    this.state.assertSingle(op, "profile one sequence");
    checkIds(op, this.model, [id]);
    return (await this.run(op, [[id]], "ids", true)).result;
  }

  dispose(): void {
    for (const step of this.steps.values()) release(step);
    this.steps.clear();
    this.arena.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
