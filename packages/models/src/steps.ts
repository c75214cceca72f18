import {
  type Arena,
  type ArenaMark,
  MlxtsError,
  type Recording,
  type Submission,
  type SubmissionResult,
  type Tensor,
} from "@mlxts/core";
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
  /** f32 [T, vocab], from which `next` was chosen; all recordings share its memory. */
  logits: Tensor;
  recording: Recording;
}

/** A step that has run. */
interface Ran {
  step: Step;
  result: SubmissionResult;
  /** For each sequence the ids that follow its tokens. @throws MlxtsError `NotANumber` when one's logits are all NaN */
  ids(): number[][];
}

/** Whether the logits of a row are all NaN: then, and only then, its id is 0 and logit 0 is NaN. */
function isNaNRow({ logits }: Step, next: Uint32Array, row: number): boolean {
  return next[row] === 0 && Number.isNaN(logits.view(row * logits.lastDim, [1]).readSync()[0]);
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
  /** f32 [rows, vocab]: memory for the logits of steps, of more rows each time, and that of `twin`. */
  private readonly logits: Tensor[] = [];
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
      this.dispose();
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
      const logits = this.logitsOf(next.size);
      const step = { tokens, next, logits, recording: this.record(tokens, next, logits) };
      this.steps.set(key, step);
      return step;
    } catch (error) {
      tokens.dispose();
      next?.dispose();
      throw error;
    }
  }

  /** f32 [rows, vocab] for the logits of a step. */
  private logitsOf(rows: number): Tensor {
    const { device, vocabSize } = this.model;
    let logits = this.logits.find(({ shape: [most] }) => (most as number) >= rows);
    if (!logits) {
      logits = device.tensor("f32", [rows, vocabSize]);
      this.logits.push(logits);
    }
    return logits.slice(0, rows);
  }

  private record({ tokens, places, counts }: PassTokens, next: Tensor, out: Tensor): Recording {
    // All recordings use the same scratch memory: they run one after the other.
    this.arena.rewind(this.begin);
    // "using" disposes the encoder when an op refuses its arguments; after `finish` it has no effect.
    using encoder = this.model.device.encoder({ arena: this.arena, optimize: optimizeSteps(this.model.fusions) });
    const log = this.state.maxRollback > 0;
    const hidden = this.model.encode(encoder, this.state, tokens, { path: this.model.stepPath, log });
    const logits = this.model.encodeLogits(encoder, hidden, [...Array(next.size).keys()], out);
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

  /** Feeds each sequence its tokens. */
  async run(op: string, batch: readonly (readonly number[])[], argument = "ids", profile = false): Promise<Ran> {
    const counts = batch.map((ids) => ids.length);
    this.state.assertRoom(op, counts, argument);
    const step = this.step(counts);
    const { tokens, recording } = step;
    tokens.write(this.state, batch, this.drawn);
    const result = await this.state.advance(recording.replay({ profile }), counts, this.state.maxRollback > 0);
    for (const [at, count] of counts.entries()) this.drawn[at] = (this.drawn[at] as number) + count;
    return { step, result, ids: () => this.chosen(op, step, batch) };
  }

  /** What follows each token of a step that has run. @throws MlxtsError `NotANumber` */
  private chosen(op: string, step: Step, batch: readonly (readonly number[])[]): number[][] {
    const next = step.next.readSync() as Uint32Array;
    let row = 0;
    return batch.map((fed, at) => {
      const begin = row;
      for (; row < begin + fed.length; row++)
        if (isNaNRow(step, next, row)) throw this.notANumber(op, at, fed, row - begin);
      return Array.from(next.subarray(begin, row));
    });
  }

  /** The error of a token of the last step whose logits are NaN; the state holds what the step fed. */
  private notANumber(op: string, sequence: number, fed: readonly number[], at: number): MlxtsError {
    const after = fed.length - at;
    const position = this.state.length(sequence) - after;
    const step = (this.drawn[sequence] as number) - after + 1;
    const [token, where] = [fed[at] as number, this.state.sequences === 1 ? "" : ` in sequence ${sequence}`];
    const text = `${op}: step ${step} gave nothing but NaN as logits, after token ${token} at position ${position}${where} — look for NaN and infinities in the weights; where activations are f16, load the model with others`;
    return new MlxtsError("NotANumber", text, { op, step, sequence, position, token });
  }

  /** Feeds each sequence its tokens; returns the id that follows each of them. */
  async feed(op: string, batch: readonly (readonly number[])[], argument?: string): Promise<number[][]> {
    return (await this.run(op, batch, argument)).ids();
  }

  /** Feeds one token; returns the one that follows. */
  async next(op: string, id: number): Promise<number> {
    return (await this.feed(op, [[id]]))[0]?.[0] as number;
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
    return this.chosen(op, step, [[id]])[0]?.[0] as number;
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
    const { tokens, next, logits, recording } = this.whole;
    const { device } = this.model;
    const own = new PassTokens(device, tokens.counts);
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
      const ownLogits = device.tensor("f32", logits.shape);
      // `logitsOf` finds those of `whole` first.
      this.logits.push(ownLogits);
      const views = words.flatMap(([from, to]) =>
        (["u32", "i32"] as const).map((dtype): [Tensor, Tensor] => [from.cast(dtype), to.cast(dtype)]),
      );
      const bound = [...views, [logits, ownLogits] as const].filter(([from]) => recording.binds(from));
      return { tokens: own, next: ids, logits: ownLogits, recording: recording.rebind(bound) };
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
    const fed = [id, ...draft];
    const { step } = await this.run(op, [fed], "draft");
    const next = step.next.readSync() as Uint32Array;
    let right = 0;
    while (right < draft.length && next[right] === draft[right] && !isNaNRow(step, next, right)) right++;
    const broken = isNaNRow(step, next, right);
    const failure = broken && right === 0 ? this.notANumber(op, 0, fed, 0) : undefined;
    // What comes before a row of NaN is right; the step that begins with its token fails.
    if (broken && right > 0) right--;
    const wrong = draft.length - right;
    this.drawn[0] = (this.drawn[0] as number) - wrong;
    await this.state.runRollbacks([wrong]);
    if (failure) throw failure;
    return Array.from(next.subarray(0, right + 1));
  }

  dispose(): void {
    for (const step of this.steps.values()) release(step);
    this.steps.clear();
    if (this.twin) release(this.twin);
    for (const logits of this.logits) logits.dispose();
    this.arena.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
