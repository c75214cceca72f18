import {
  type CommandEncoder,
  type Device,
  MlxtsError,
  printAsJson,
  type Recording,
  type SubmissionResult,
  type Tensor,
  wrongKind,
  wrongValue,
} from "@mlxts/core";
import { allOrNone } from "./all_or_none.ts";
import { type NumberArray, readCacheRows, writeCacheRows } from "./cache_rows.ts";
import { checkInteger } from "./check_integer.ts";
import { type SavedState, savedData, savedTokens } from "./saved_state.ts";
import { type CallOptions, signalOf } from "./signal.ts";
import type { StateSizes, StateSpec } from "./state_options.ts";
import { StateUse } from "./state_use.ts";

type StateTensor = StateSpec & { tensor: Tensor };

/** What a state needs of its `LanguageModel`. */
export interface StateModel {
  readonly device: Device;
  readonly modelType: string;
  encodeRollback(encoder: CommandEncoder, state: ModelState, sequence: number, rejected: Tensor): void;
}

/** Refuses what is not a state of that model. */
export function checkState(op: string, model: StateModel, state: ModelState): void {
  // Of whichever copy of the library.
  if (typeof (state as Partial<ModelState> | null | undefined)?.assertRoom !== "function")
    throw wrongKind(op, "state", "be a state made by model.newState", state);
  if (state.model !== model)
    throw wrongValue(op, "state", "belong to the model", "a state of another model", "make it with model.newState");
}

/** One sequence's recorded rollback. */
interface Undo {
  rejected: Tensor;
  recording: Recording;
}

/**
 * What a model remembers of its sequences: recurrent and convolution states of fixed size, key and value caches of
 * `capacity` rows.
 *
 * A state is in use from a call to its settlement, by a generation until it ends. Until then other calls are refused with
 * an MlxtsError `Busy`; only several `save` may overlap. `dispose` is always possible: calls that have not ended reject
 * with `Disposed`. A call that is canceled or fails frees the state. What passes had run by then stays, `lengths` counts
 * it; but when the device fails in a pass, the sequences are undefined until they are reset or restored, and refused.
 */
export class ModelState {
  /** The `LanguageModel` that made it. */
  readonly model: StateModel;
  readonly device: Device;
  /** The longest sequence the caches hold. */
  readonly capacity: number;
  readonly sequences: number;
  /** The most tokens that `rollback` takes back. */
  readonly maxRollback: number;
  /** @internal */
  readonly parts: readonly StateTensor[];
  private readonly use = new StateUse();
  private readonly counts: number[];
  /** Of each sequence, tokens of the last pass that can still be taken back, and those that were. */
  private readonly left: number[];
  private readonly taken: number[];
  /** Of each sequence, the failure that left it undefined. */
  private readonly failures: (Error | undefined)[];
  private readonly undos = new Map<number, Undo>();
  private gone = false;

  /** @internal Use `model.newState`. */
  constructor(model: StateModel, { capacity, sequences, rollback }: StateSizes, tensors: readonly StateSpec[]) {
    this.model = model;
    this.device = model.device;
    this.capacity = capacity;
    this.sequences = sequences;
    this.maxRollback = rollback;
    this.parts = allOrNone(tensors, ({ dtype, shape }) => this.device.tensor(dtype, shape)).map((tensor, i) => ({
      ...(tensors[i] as StateSpec),
      tensor,
    }));
    this.counts = Array(sequences).fill(0);
    this.left = Array(sequences).fill(0);
    this.taken = Array(sequences).fill(0);
    this.failures = Array(sequences).fill(undefined);
  }

  /** Tokens seen so far, by all sequences together. */
  get tokens(): number {
    return this.counts.reduce((sum, count) => sum + count, 0);
  }

  /** Tokens that each sequence has seen. */
  get lengths(): readonly number[] {
    return [...this.counts];
  }

  get disposed(): boolean {
    return this.gone || this.device.disposed;
  }

  /** @internal Tokens that sequence `at` has seen. */
  length(at: number): number {
    return this.counts[at] as number;
  }

  /** @internal Keeps other calls out until the result is disposed. */
  begin(op: string, access: "change" | "read" = "change"): Disposable {
    this.assertLive();
    return this.use.begin(op, access);
  }

  /** @internal Waits for a pass over so many tokens of each sequence; `logged`: its last ones can be taken back. */
  async advance(
    pass: PromiseLike<SubmissionResult>,
    counts: readonly number[],
    logged: boolean,
  ): Promise<SubmissionResult> {
    const result = await this.settle(pass);
    for (const [at, count] of counts.entries()) {
      this.counts[at] = this.length(at) + count;
      this.left[at] = logged ? Math.min(count, this.maxRollback) : 0;
      this.taken[at] = 0;
    }
    return result;
  }

  /** Work on the device that failed leaves all sequences undefined. */
  private async settle(work: PromiseLike<SubmissionResult>): Promise<SubmissionResult> {
    try {
      const result = await work;
      this.assertLive();
      return result;
    } catch (error) {
      this.failures.fill(error as Error);
      this.left.fill(0);
      throw error;
    }
  }

  private assertLive(): void {
    if (this.disposed) throw new MlxtsError("Disposed", "the model state has been disposed", { what: "model state" });
  }

  private assertDefined(op: string, at: number): void {
    const failure = this.failures[at];
    if (!failure) return;
    const text = `${op}: sequence ${at} of the state is undefined since work on it failed — reset or restore it first`;
    throw new MlxtsError("CommandBuffer", text, { sequence: at }, failure);
  }

  /** @internal Whether the contents of all sequences are known. */
  get defined(): boolean {
    return !this.disposed && this.failures.every((failure) => failure === undefined);
  }

  /** @internal Refuses tokens that do not fit, and sequences that are undefined. */
  assertRoom(op: string, counts: readonly number[], argument = "ids"): void {
    this.assertLive();
    for (const [at, tokens] of counts.entries()) {
      if (tokens > 0) this.assertDefined(op, at);
      if (this.length(at) + tokens <= this.capacity) continue;
      const where = this.sequences === 1 ? "" : ` in sequence ${at}`;
      const value = `${this.length(at)} tokens before and ${tokens} more${where}`;
      throw wrongValue(op, argument, `fit the context of ${this.capacity} tokens`, value);
    }
  }

  /** @internal For what goes with one sequence only. */
  assertSingle(op: string, remedy: string): void {
    if (this.sequences !== 1) throw wrongValue(op, "state", "hold one sequence", this.sequences, remedy);
  }

  private part(name: string): StateTensor {
    return this.parts.find((part) => part.name === name) as StateTensor;
  }

  /** @internal */
  tensor(name: string): Tensor {
    return this.part(name).tensor;
  }

  /** @internal What counts of a fixed tensor, of one sequence: [1, ...]. */
  fixedPart(name: string, sequence: number): Tensor {
    const { tensor, tail = tensor.shape[1] as number } = this.part(name);
    const [, rows, ...rest] = tensor.shape as [number, number, ...number[]];
    const perRow = rest.reduce((a, b) => a * b, 1);
    return tensor.view(((sequence + 1) * rows - tail) * perRow, [1, tail, ...rest]);
  }

  /** @internal What was copied in from elsewhere: nothing of it can be taken back. */
  jump(sequence: number, tokens: number): void {
    this.counts[sequence] = tokens;
    this.left[sequence] = 0;
    this.taken[sequence] = 0;
    this.failures[sequence] = undefined;
  }

  private checkSequence(op: string, sequence: number): number {
    this.assertLive();
    return checkInteger(op, "sequence", sequence, 0, this.sequences - 1);
  }

  /**
   * A copy of everything that later tokens of one sequence (default: the first) depend on; caches up to the last token.
   * Restoring it, there or in another state of the model, is exact to the bit.
   */
  async save(sequence = 0, options: CallOptions = {}): Promise<SavedState> {
    const op = "state.save";
    const signal = signalOf(op, options);
    const at = this.checkSequence(op, sequence);
    using _ = this.begin(op, "read");
    this.assertDefined(op, at);
    const tokens = this.length(at);
    const tensors: SavedState["tensors"] = {};
    for (const { name, kind, dtype, shape, tensor } of this.parts) {
      if (kind === "log" || (kind === "cache" && tokens === 0)) continue;
      if (kind === "fixed") {
        const fixed = this.fixedPart(name, at);
        tensors[name] = { dtype, shape: fixed.shape, data: await fixed.read() };
      } else {
        const data = await readCacheRows(tensor, at, 0, tokens);
        tensors[name] = { dtype, shape: [1, ...shape.slice(1, -2), tokens, tensor.lastDim], data };
      }
      signal?.throwIfAborted();
    }
    return { tokens, tensors };
  }

  /** Replaces the contents of one sequence (default: the first) with a saved one of the same model. */
  restore(saved: SavedState, sequence = 0): void {
    const op = "state.restore";
    const at = this.checkSequence(op, sequence);
    this.use.assertFree(op);
    const tokens = savedTokens(op, saved, this.capacity);
    const writes = this.parts.flatMap(({ name, kind, tensor }) => {
      if (kind === "log" || (kind === "cache" && tokens === 0)) return [];
      const fixed = kind === "fixed" ? this.fixedPart(name, at) : undefined;
      const shape = fixed?.shape ?? [1, ...tensor.shape.slice(1, -2), tokens, tensor.lastDim];
      return [{ tensor, fixed, data: savedData(op, saved, name, tensor.dtype, shape) as NumberArray }];
    });
    for (const { tensor, fixed, data } of writes)
      if (fixed) fixed.write(data);
      else writeCacheRows(tensor, at, 0, tokens, data);
    this.jump(at, tokens);
  }

  /** Forgets one sequence; without an argument, all. */
  reset(sequence?: number): void {
    const op = "state.reset";
    if (sequence !== undefined) this.checkSequence(op, sequence);
    this.assertLive();
    this.use.assertFree(op);
    const [begin, end] = sequence === undefined ? [0, this.sequences] : [sequence, sequence + 1];
    for (const { tensor, kind } of this.parts) {
      if (kind !== "fixed") continue;
      const part = tensor.slice(begin, end);
      part.buffer.write(new Uint8Array(part.byteLength), part.byteOffset);
    }
    for (let at = begin; at < end; at++) this.jump(at, 0);
  }

  /**
   * Takes back the last `tokens` tokens of the last pass (a `prefill`, a step of a `Decoder`): the state is then, to the
   * bit, the one that the pass went through before them. A number for all sequences, or one for each; one with 0 is left
   * as it is. At most the `rollback` that the state was made with, and no more than the pass had; can be repeated.
   * A rollback that is canceled on its way is done all the same.
   */
  async rollback(tokens: number | readonly number[], options: CallOptions = {}): Promise<void> {
    const op = "state.rollback";
    const signal = signalOf(op, options);
    this.assertLive();
    if (typeof tokens !== "number" && !Array.isArray(tokens))
      throw wrongKind(op, "tokens", "be a number or an array of numbers", tokens);
    if (typeof tokens !== "number" && tokens.length !== this.sequences)
      throw wrongValue(
        op,
        "tokens",
        `have one entry for each of the state's ${this.sequences} sequences`,
        tokens.length,
      );
    const each = Array.from({ length: this.sequences }, (_, at) =>
      typeof tokens === "number" ? tokens : (tokens[at] as number),
    );
    using _ = this.begin(op);
    for (const [at, count] of each.entries()) {
      const left = this.left[at] as number;
      if (Number.isInteger(count) && count >= 0 && count <= left) continue;
      const where = this.sequences === 1 ? "" : ` in sequence ${at}`;
      const remedy = this.maxRollback === 0 ? "make the state with newState({ rollback })" : undefined;
      const rule = `be an integer from 0 to ${left}, what the last pass left to take back${where}`;
      throw wrongValue(op, "tokens", rule, count, remedy);
    }
    await this.takeBack(each);
    signal?.throwIfAborted();
  }

  /** @internal What `rollback` does once its arguments are checked. */
  async takeBack(each: readonly number[]): Promise<void> {
    const undos = [...each.entries()].flatMap(([at, count]) =>
      count > 0 ? [{ at, count, ...this.recordRollback(at) }] : [],
    );
    const work = undos.map(async ({ at, count, rejected, recording }) => {
      rejected.write([count + (this.taken[at] as number)]);
      return await recording.replay();
    });
    // Whatever one of them does, nothing is in flight after the call.
    await Promise.allSettled(work);
    for (const each of work) await this.settle(each);
    for (const { at, count } of undos) {
      this.counts[at] = this.length(at) - count;
      this.left[at] = (this.left[at] as number) - count;
      this.taken[at] = (this.taken[at] as number) + count;
    }
  }

  /** @internal The rollback of one sequence, recorded once; the others are none of its business. */
  recordRollback(at: number): Undo {
    const known = this.undos.get(at);
    if (known) return known;
    const rejected = this.device.tensor("i32", [1]);
    try {
      using encoder = this.device.encoder();
      this.model.encodeRollback(encoder, this, at, rejected);
      const undo = { rejected, recording: encoder.finish() };
      this.undos.set(at, undo);
      return undo;
    } catch (error) {
      rejected.dispose();
      throw error;
    }
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { sequences, capacity, lengths, maxRollback: rollback, disposed } = this;
    const bytes = this.parts.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
    const { modelType } = this.model;
    return { type: "ModelState", modelType, sequences, capacity, lengths, rollback, bytes, disposed };
  }

  dispose(): void {
    this.gone = true;
    for (const { recording, rejected } of this.undos.values()) {
      recording.dispose();
      rejected.dispose();
    }
    this.undos.clear();
    for (const { tensor } of this.parts) tensor.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

printAsJson(ModelState);
