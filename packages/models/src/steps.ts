import type { Arena, ArenaMark, Recording, SubmissionResult, Tensor } from "@mlxts/core";
import { argmax, sample } from "@mlxts/nn";
import type { LanguageModel } from "./language_model.ts";
import { optimizeSteps } from "./optimize.ts";
import { isGreedy, type Sampling } from "./sampling.ts";
import type { ModelState } from "./state.ts";
import { PassTokens } from "./tokens.ts";

/** A recorded pass over a fixed number of tokens of each sequence. */
interface Step {
  tokens: PassTokens;
  recording: Recording;
}

function release({ recording, tokens }: Step): void {
  recording.dispose();
  tokens.dispose();
}

/** The most recordings that are kept: passes differ in the lengths of guesses and in the sequences that take part. */
const MAX_STEPS = 32;

/** Decode passes over a state, recorded once and replayed. The caller has checked the tokens and begun the use of the state. */
export class Steps {
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly sampling: readonly Sampling[];
  /** Whether no sequence draws: one op then takes the likeliest token of all rows. */
  private readonly greedy: boolean;
  private readonly arena: Arena;
  private readonly begin: ArenaMark;
  /** By the numbers of tokens. */
  private readonly steps = new Map<string, Step>();
  /** One token of each sequence. */
  private readonly whole: Step;
  /** For each sequence the tokens that it has drawn. */
  private readonly drawn: number[];

  /** `sampling` for each sequence of the state. */
  constructor(model: LanguageModel, state: ModelState, sampling: readonly Sampling[]) {
    this.model = model;
    this.state = state;
    this.sampling = sampling;
    this.greedy = sampling.every(isGreedy);
    this.drawn = sampling.map(() => 0);
    this.arena = model.device.arena(1 << 20, { grow: true });
    this.begin = this.arena.mark();
    try {
      this.whole = this.step(sampling.map(() => 1));
    } catch (error) {
      this.arena.dispose();
      throw error;
    }
  }

  private step(counts: readonly number[]): Step {
    const key = counts.join();
    const known = this.steps.get(key);
    if (known) return known;
    if (this.steps.size === MAX_STEPS)
      for (const [oldest, step] of this.steps)
        if (step !== this.whole) {
          this.steps.delete(oldest);
          release(step);
          break;
        }
    const tokens = new PassTokens(this.model.device, counts);
    try {
      const step = { tokens, recording: this.record(tokens) };
      this.steps.set(key, step);
      return step;
    } catch (error) {
      tokens.dispose();
      throw error;
    }
  }

  private record({ tokens, places, counts }: PassTokens): Recording {
    // All recordings use the same scratch memory: they run one after the other.
    this.arena.rewind(this.begin);
    // "using" disposes the encoder when an op refuses its arguments; after `finish` it has no effect.
    using encoder = this.model.device.encoder({ arena: this.arena, optimize: optimizeSteps(this.model.fusions) });
    const log = this.state.maxRollback > 0;
    const hidden = this.model.encode(encoder, this.state, tokens, { path: this.model.stepPath, log });
    const { ids } = tokens;
    const logits = this.model.encodeLogits(encoder, hidden, [...Array(ids.size).keys()]);
    // The next ids overwrite those that were fed.
    if (this.greedy) argmax(encoder, { logits, ids });
    else {
      // One op for each row: what is drawn depends on the seed and the place, not on the other rows.
      const rows = counts.flatMap((count, at) => Array<Sampling>(count).fill(this.sampling[at] as Sampling));
      for (const [row, sampling] of rows.entries()) {
        const own = (t: Tensor) => t.slice(row, row + 1);
        sample(encoder, { logits: own(logits), step: own(places), ids: own(ids) }, { ...sampling });
      }
    }
    return encoder.finish();
  }

  /** Dispatches of a step in which all sequences take part. */
  get dispatches(): number {
    return this.whole.recording.dispatches;
  }

  /** Feeds each sequence its tokens; the ids that follow them are in the tensor `ids`. */
  async run(
    op: string,
    batch: readonly (readonly number[])[],
    argument = "ids",
    profile = false,
  ): Promise<{ ids: Tensor; result: SubmissionResult }> {
    const counts = batch.map((ids) => ids.length);
    this.state.assertRoom(op, counts, argument);
    const { tokens, recording } = this.step(counts);
    tokens.write(this.state, batch, this.drawn);
    const result = await this.state.advance(recording.replay({ profile }), counts, this.state.maxRollback > 0);
    for (const [at, count] of counts.entries()) this.drawn[at] = (this.drawn[at] as number) + count;
    return { ids: tokens.tokens.ids, result };
  }

  /** Feeds each sequence its tokens; returns the id that follows each of them. */
  async feed(op: string, batch: readonly (readonly number[])[], argument?: string): Promise<number[][]> {
    const { ids } = await this.run(op, batch, argument);
    const next = ids.readSync() as Uint32Array;
    let row = 0;
    return batch.map(({ length }) => {
      row += length;
      return Array.from(next.subarray(row - length, row));
    });
  }

  /** Feeds one token; returns the one that follows. */
  async next(op: string, id: number): Promise<number> {
    const { ids } = await this.run(op, [[id]]);
    return ids.readSync()[0] as number;
  }

  /** Feeds one token and a guess at those that follow; rolls the wrong ones back. Returns the right ones and the next. */
  async speculate(op: string, id: number, draft: readonly number[]): Promise<number[]> {
    // Recorded before the pass: when recording fails, nothing has been fed.
    if (draft.length > 0) this.state.recordRollback(0);
    const [next] = (await this.feed(op, [[id, ...draft]], "draft")) as [number[]];
    let right = 0;
    while (right < draft.length && next[right] === draft[right]) right++;
    const wrong = draft.length - right;
    this.drawn[0] = (this.drawn[0] as number) - wrong;
    await this.state.runRollbacks([wrong]);
    return next.slice(0, right + 1);
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
