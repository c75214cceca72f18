import type { Arena, ArenaMark, Recording, SubmissionResult, Tensor } from "@mlxts/core";
import { argmax, sample } from "@mlxts/nn";
import type { LanguageModel } from "./language_model.ts";
import { isGreedy, type Sampling } from "./sampling.ts";
import type { ModelState } from "./state.ts";
import { PassTokens } from "./tokens.ts";

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

/** Decode passes over a state, recorded once and replayed. Who calls them has checked the tokens, and is using the state. */
export class Steps {
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly sampling: readonly Sampling[];
  /** No sequence draws: the likeliest token of all rows at once. */
  private readonly greedy: boolean;
  private readonly arena: Arena;
  private readonly begin: ArenaMark;
  private readonly steps = new Map<string, Step>();
  private readonly whole: Step;
  /** Tokens that each sequence has drawn. */
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
    if (this.steps.size === MOST_STEPS)
      for (const [oldest, step] of this.steps)
        if (step !== this.whole) {
          this.steps.delete(oldest);
          release(step);
          break;
        }
    const { device } = this.model;
    const tokens = new PassTokens(device, counts);
    const made: { dispose(): void }[] = [tokens];
    try {
      const places = device.tensor("u32", [tokens.tokens.ids.size]);
      made.push(places);
      const step = { tokens, places, recording: this.record(tokens, places) };
      this.steps.set(key, step);
      return step;
    } catch (error) {
      for (const each of made) each.dispose();
      throw error;
    }
  }

  private record({ tokens, counts }: PassTokens, places: Tensor): Recording {
    // Recordings share their scratch: they run one after the other.
    this.arena.rewind(this.begin);
    // Disposed when an op refuses its arguments; after `finish` there is nothing left to dispose.
    using encoder = this.model.device.encoder({ arena: this.arena });
    const log = this.state.maxRollback > 0;
    const hidden = this.model.encode(encoder, this.state, tokens, { path: this.model.stepPath, log });
    const { ids } = tokens;
    const logits = this.model.encodeLogits(encoder, hidden, [...Array(ids.size).keys()]);
    // The next ids replace those that were fed.
    if (this.greedy) argmax(encoder, { logits, ids });
    else {
      // Each token by itself: its random numbers depend on its seed and place, not on what is beside it.
      const rows = counts.flatMap((count, at) => Array<Sampling>(count).fill(this.sampling[at] as Sampling));
      for (const [row, sampling] of rows.entries()) {
        const own = (t: Tensor) => t.slice(row, row + 1);
        sample(encoder, { logits: own(logits), step: own(places), ids: own(ids) }, { ...sampling });
      }
    }
    return encoder.finish();
  }

  /** Dispatches of one step of all sequences. */
  get dispatches(): number {
    return this.whole.recording.dispatches;
  }

  /** Runs the step of so many tokens of each sequence; the ids that follow are in its tensor. */
  async run(
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
    const result = await this.state.advance(recording.replay({ profile }), counts, this.state.maxRollback > 0);
    for (const [at, count] of counts.entries()) this.drawn[at] = (this.drawn[at] as number) + count;
    return { ids: tokens.tokens.ids, result };
  }

  /** Feeds each sequence its tokens; what follows each of them. */
  async feed(op: string, batch: readonly (readonly number[])[], argument?: string): Promise<number[][]> {
    const { ids } = await this.run(op, batch, argument);
    const next = ids.readSync() as Uint32Array;
    let row = 0;
    return batch.map(({ length }) => {
      row += length;
      return Array.from(next.subarray(row - length, row));
    });
  }

  /** Feeds one token; the one that follows. */
  async next(op: string, id: number): Promise<number> {
    const { ids } = await this.run(op, [[id]]);
    return ids.readSync()[0] as number;
  }

  /** Feeds one token and a guess at what follows, and takes back what was wrong; the tokens that are right. */
  async speculate(op: string, id: number, draft: readonly number[]): Promise<number[]> {
    // Before anything is fed: what may be wrong can then be taken back.
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
