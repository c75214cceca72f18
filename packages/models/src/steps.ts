import type { Arena, ArenaMark, Recording, Submission, SubmissionResult, Tensor } from "@mlxts/core";
import { argmax, sample } from "@mlxts/nn";
import type { LanguageModel } from "./language_model.ts";
import { optimizeSteps } from "./optimize.ts";
import { isGreedy, type Sampling } from "./sampling.ts";
import type { ModelState } from "./state.ts";
import { PassTokens } from "./tokens.ts";

/** A recorded pass over a fixed number of tokens of each sequence. */
interface Step {
  tokens: PassTokens;
  /** u32 [T]: for each token the one that follows. */
  next: Tensor;
  recording: Recording;
}

/** A step that has not ended. */
interface Begun {
  step: Step;
  pass: Submission;
}

function release({ recording, tokens, next }: Step): void {
  recording.dispose();
  tokens.dispose();
  next.dispose();
}

/**
 * A step is begun before the host knows its token only while steps are shorter than this: what the host does between two
 * steps is little of a longer one, and the step may turn out not to be needed.
 */
const AHEAD_MS = 24;
/** The fewest steps, short ones before included, for which the second form of the step is recorded. */
const AHEAD_STEPS = 32;

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
  /** `whole` with its tensors exchanged: it takes the id that `whole` leaves, and leaves the one that `whole` takes. */
  private twin: Step | undefined;
  /** The step that has begun before the host knows its token. */
  private ahead: Begun | undefined;
  /** Steps of `nextOfMany`, short ones that others followed. */
  private shortSteps = 0;
  /** How long the last step took. */
  private ms = Number.POSITIVE_INFINITY;

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
    const { device } = this.model;
    const tokens = new PassTokens(device, counts);
    let next: Tensor | undefined;
    try {
      next = device.tensor("u32", [tokens.tokens.ids.size]);
      const step = { tokens, next, recording: this.record(tokens, next) };
      this.steps.set(key, step);
      return step;
    } catch (error) {
      tokens.dispose();
      next?.dispose();
      throw error;
    }
  }

  private record({ tokens, places, counts }: PassTokens, next: Tensor): Recording {
    // All recordings use the same scratch memory: they run one after the other.
    this.arena.rewind(this.begin);
    // "using" disposes the encoder when an op refuses its arguments; after `finish` it has no effect.
    using encoder = this.model.device.encoder({ arena: this.arena, optimize: optimizeSteps(this.model.fusions) });
    const log = this.state.maxRollback > 0;
    const hidden = this.model.encode(encoder, this.state, tokens, { path: this.model.stepPath, log });
    const logits = this.model.encodeLogits(encoder, hidden, [...Array(next.size).keys()]);
    if (this.greedy) argmax(encoder, { logits, ids: next });
    else {
      // One op for each row: what is drawn depends on the seed and the place, not on the other rows.
      const rows = counts.flatMap((count, at) => Array<Sampling>(count).fill(this.sampling[at] as Sampling));
      for (const [row, sampling] of rows.entries()) {
        const own = (t: Tensor) => t.slice(row, row + 1);
        sample(encoder, { logits: own(logits), step: own(places), ids: own(next) }, { ...sampling });
      }
    }
    return encoder.finish();
  }

  /** Dispatches of a step in which all sequences take part. */
  get dispatches(): number {
    return this.whole.recording.dispatches;
  }

  /** Feeds each sequence its tokens; the ids that follow them are in the tensor `next`. */
  async run(
    op: string,
    batch: readonly (readonly number[])[],
    argument = "ids",
    profile = false,
  ): Promise<{ next: Tensor; result: SubmissionResult }> {
    const counts = batch.map((ids) => ids.length);
    this.state.assertRoom(op, counts, argument);
    const { tokens, next, recording } = this.step(counts);
    tokens.write(this.state, batch, this.drawn);
    const result = await this.state.advance(recording.replay({ profile }), counts, this.state.maxRollback > 0);
    for (const [at, count] of counts.entries()) this.drawn[at] = (this.drawn[at] as number) + count;
    return { next, result };
  }

  /** Feeds each sequence its tokens; returns the id that follows each of them. */
  async feed(op: string, batch: readonly (readonly number[])[], argument?: string): Promise<number[][]> {
    const { next } = await this.run(op, batch, argument);
    const ids = next.readSync() as Uint32Array;
    let row = 0;
    return batch.map(({ length }) => {
      row += length;
      return Array.from(ids.subarray(row - length, row));
    });
  }

  /** Feeds one token; returns the one that follows. */
  async next(op: string, id: number): Promise<number> {
    const { next } = await this.run(op, [[id]]);
    return next.readSync()[0] as number;
  }

  /**
   * The same for a caller that feeds nothing but what it gets, at most `more` times after this call, to a state that nobody
   * sees: the next step may begin before this call returns its token. What has begun is not part of the state until the
   * call that would have begun it; after the last call `stop` is called.
   */
  async nextOfMany(op: string, id: number, more: number): Promise<number> {
    const { state, drawn, whole } = this;
    const [length, draws] = [state.length(0) + 1, (drawn[0] as number) + 1];
    if (this.ms < AHEAD_MS && more > 0) {
      if (this.shortSteps + more >= AHEAD_STEPS) this.twin ??= this.exchanged();
      this.shortSteps++;
    }
    const { step, pass } = this.ahead ?? this.start(op, id);
    this.ahead = undefined;
    try {
      if (this.twin && this.ms < AHEAD_MS && more > 0 && length < state.capacity) {
        const following = step === whole ? this.twin : whole;
        following.tokens.follow([length], [draws]);
        this.ahead = { step: following, pass: following.recording.replay() };
      }
    } finally {
      this.ms = (await state.advance(pass, [1], false)).ms;
    }
    drawn[0] = draws;
    return step.next.readSync()[0] as number;
  }

  /**
   * Feeds `id`, then each token that follows, `count` in all; returns what follows each. When `signal` is aborted, the step
   * in flight ends first, and the one that has begun after it: the state holds both.
   */
  async nextMany(op: string, id: number, count: number, signal: AbortSignal | undefined): Promise<number[]> {
    const { state } = this;
    state.assertRoom(op, [count], "count");
    const out: number[] = [];
    const feed = async (more: number) => {
      const last = out.at(-1) ?? id;
      // Of a state that can roll back the log has a place for each pass.
      out.push(await (state.maxRollback > 0 ? this.next(op, last) : this.nextOfMany(op, last, more)));
    };
    try {
      while (out.length < count && !signal?.aborted) await feed(count - out.length - 1);
      if (this.ahead) await feed(0);
    } catch (error) {
      await this.countAhead();
      throw error;
    }
    signal?.throwIfAborted();
    return out;
  }

  private start(op: string, id: number): Begun {
    const { state, drawn, whole } = this;
    state.assertRoom(op, [1]);
    whole.tokens.write(state, [[id]], drawn);
    return { step: whole, pass: whole.recording.replay() };
  }

  private exchanged(): Step {
    const { tokens, next, recording } = this.whole;
    const own = new PassTokens(this.model.device, tokens.counts);
    const { ids, positions, start, lengths } = tokens.tokens;
    // Tensors of one word each: a model may see them as another dtype, but not in part.
    const words: [Tensor, Tensor][] = [
      [ids, next],
      [next, ids],
      [positions, own.tokens.positions],
      [start, own.tokens.start],
      [lengths, own.tokens.lengths],
      [tokens.places, own.places],
    ];
    try {
      const views = words.flatMap(([from, to]) =>
        (["u32", "i32"] as const).map((dtype) => [from.cast(dtype), to.cast(dtype)] as const),
      );
      const bound = views.filter(([from]) => recording.binds(from));
      return { tokens: own, next: ids, recording: recording.rebind(bound) };
    } catch (error) {
      own.dispose();
      throw error;
    }
  }

  /** Makes the step that has begun, if there is one, part of the state; where it fails, the state is undefined. */
  private async countAhead(): Promise<void> {
    const { ahead } = this;
    this.ahead = undefined;
    if (!ahead) return;
    await this.state.advance(ahead.pass, [1], false).then(
      () => {
        this.drawn[0] = (this.drawn[0] as number) + 1;
      },
      () => {},
    );
  }

  /** Waits for the step that has begun for nothing, if there is one: a state that goes on is not the caller's. */
  async stop(): Promise<void> {
    const { ahead } = this;
    this.ahead = undefined;
    await ahead?.pass.then(null, () => {});
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
    if (this.twin) release(this.twin);
    this.arena.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
