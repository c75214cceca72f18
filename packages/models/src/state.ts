import {
  type CommandEncoder,
  type Device,
  type Fusion,
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
import { optimizeSteps } from "./optimize.ts";
import { type SavedState, savedData, savedTokens } from "./saved_state.ts";
import { type CallOptions, signalOf } from "./signal.ts";
import type { StateSizes, StateSpec } from "./state_options.ts";
import { StateUse } from "./state_use.ts";

/** What a state needs of its `LanguageModel`. */
export interface StateModel {
  readonly device: Device;
  readonly modelType: string;
  readonly fusions: readonly Fusion[];
  encodeRollback(encoder: CommandEncoder, state: ModelState, sequence: number, rejected: Tensor): void;
}

/** Refuses a value that is not a state of that model. `instanceof` would refuse states of other copies of the library. */
export function checkState(op: string, model: StateModel, state: ModelState): void {
  if (typeof (state as Partial<ModelState> | null | undefined)?.assertRoom !== "function")
    throw wrongKind(op, "state", "be a state made by model.newState", state);
  if (state.model !== model)
    throw wrongValue(op, "state", "belong to the model", "a state of another model", "make it with model.newState");
}

type StateTensor = StateSpec & { tensor: Tensor };

/** What is known of a sequence on the host. */
interface Sequence {
  /** Its tokens. */
  length: number;
  /** Tokens of its last pass that can still be rolled back. */
  undoable: number;
  /** Tokens of its last pass that have been rolled back. */
  undone: number;
  /** The failure that left its contents unknown. */
  failure: Error | undefined;
}

/** The rollback of one sequence, recorded once and replayed. */
interface RecordedRollback {
  /** i32 [1]: tokens of the last pass that are rolled back, those of earlier rollbacks included. */
  rejected: Tensor;
  recording: Recording;
}

/**
 * What a model remembers of its sequences: recurrent states of fixed size, and caches of `capacity` rows.
 *
 * A state is in use from a call until the call settles, by a generation until it ends. Until then other calls are refused
 * with an MlxtsError `Busy`; only several `save` may overlap. `dispose` is always possible: calls that have not ended
 * reject with `Disposed`. After a call that is canceled or fails, the state is free again and holds the passes that ran,
 * see `lengths`. When the device itself fails in a pass, the contents of the sequences are unknown: they are refused until
 * they are reset or restored.
 */
export class ModelState {
  /** The `LanguageModel` that made it. */
  readonly model: StateModel;
  readonly device: Device;
  /** The most tokens that a sequence can have. */
  readonly capacity: number;
  readonly sequences: number;
  /** The most tokens that `rollback` can take back. */
  readonly maxRollback: number;
  /** @internal */
  readonly tensors: readonly StateTensor[];
  private readonly use = new StateUse();
  private readonly sequenceList: readonly Sequence[];
  /** By sequence. */
  private readonly rollbacks = new Map<number, RecordedRollback>();
  private isDisposed = false;

  /** @internal Use `model.newState`. */
  constructor(model: StateModel, { capacity, sequences, rollback }: StateSizes, specs: readonly StateSpec[]) {
    this.model = model;
    this.device = model.device;
    this.capacity = capacity;
    this.sequences = sequences;
    this.maxRollback = rollback;
    const tensors = allOrNone(specs, ({ dtype, shape }) => this.device.tensor(dtype, shape));
    this.tensors = tensors.map((tensor, i) => ({ ...(specs[i] as StateSpec), tensor }));
    this.sequenceList = Array.from({ length: sequences }, () => ({
      length: 0,
      undoable: 0,
      undone: 0,
      failure: undefined,
    }));
  }

  /** Tokens of all sequences together. */
  get tokens(): number {
    return this.sequenceList.reduce((sum, { length }) => sum + length, 0);
  }

  /** Tokens of each sequence. */
  get lengths(): readonly number[] {
    return this.sequenceList.map(({ length }) => length);
  }

  get disposed(): boolean {
    return this.isDisposed || this.device.disposed;
  }

  private sequence(at: number): Sequence {
    return this.sequenceList[at] as Sequence;
  }

  /** @internal Tokens of sequence `at`. */
  length(at: number): number {
    return this.sequence(at).length;
  }

  /** @internal Marks the state as in use by `op` until the result is disposed. */
  begin(op: string, access: "change" | "read" = "change"): Disposable {
    this.assertLive();
    return this.use.begin(op, access);
  }

  /**
   * @internal Waits for a pass over so many tokens of each sequence. `logged`: the last of them can be rolled back.
   */
  async advance(
    pass: PromiseLike<SubmissionResult>,
    counts: readonly number[],
    logged: boolean,
  ): Promise<SubmissionResult> {
    const result = await this.settle(pass);
    for (const [at, count] of counts.entries()) {
      const sequence = this.sequence(at);
      sequence.length += count;
      sequence.undoable = logged ? Math.min(count, this.maxRollback) : 0;
      sequence.undone = 0;
    }
    return result;
  }

  /** Waits for work on the device. When it fails, the contents of all sequences are unknown. */
  private async settle(work: PromiseLike<SubmissionResult>): Promise<SubmissionResult> {
    try {
      const result = await work;
      this.assertLive();
      return result;
    } catch (error) {
      for (const sequence of this.sequenceList) Object.assign(sequence, { failure: error, undoable: 0 });
      throw error;
    }
  }

  private assertLive(): void {
    if (this.disposed) throw new MlxtsError("Disposed", "the model state has been disposed", { what: "model state" });
  }

  private assertDefined(op: string, at: number): void {
    const { failure } = this.sequence(at);
    if (!failure) return;
    const text = `${op}: sequence ${at} of the state is undefined since work on it failed — reset or restore it first`;
    throw new MlxtsError("CommandBuffer", text, { sequence: at }, failure);
  }

  /** @internal Whether the contents of all sequences are known. */
  get defined(): boolean {
    return !this.disposed && this.sequenceList.every(({ failure }) => failure === undefined);
  }

  /** @internal Refuses tokens that do not fit, and sequences whose contents are unknown. */
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

  /** @internal Refuses a state of several sequences. */
  assertSingle(op: string, remedy: string): void {
    if (this.sequences !== 1) throw wrongValue(op, "state", "hold one sequence", this.sequences, remedy);
  }

  private find(name: string): StateTensor {
    return this.tensors.find((each) => each.name === name) as StateTensor;
  }

  /** @internal */
  tensor(name: string): Tensor {
    return this.find(name).tensor;
  }

  /** @internal The rows of a fixed tensor that later tokens of one sequence depend on: [1, rows, ...]. */
  fixedRows(name: string, sequence: number): Tensor {
    const { tensor, tail = tensor.shape[1] as number } = this.find(name);
    const [, rows, ...rest] = tensor.shape as [number, number, ...number[]];
    const perRow = rest.reduce((a, b) => a * b, 1);
    return tensor.view(((sequence + 1) * rows - tail) * perRow, [1, tail, ...rest]);
  }

  /** @internal Notes that the contents of a sequence were replaced by those of `tokens` other tokens. */
  replaced(at: number, tokens: number): void {
    Object.assign(this.sequence(at), { length: tokens, undoable: 0, undone: 0, failure: undefined });
  }

  private checkSequence(op: string, sequence: number): number {
    this.assertLive();
    return checkInteger(op, "sequence", sequence, 0, this.sequences - 1);
  }

  /**
   * Copies everything that later tokens of one sequence (default: the first) depend on to the host. Restoring it, in this
   * state or in another one of the model, is exact to the bit.
   */
  async save(sequence = 0, options: CallOptions = {}): Promise<SavedState> {
    const op = "state.save";
    const signal = signalOf(op, options);
    const at = this.checkSequence(op, sequence);
    using _ = this.begin(op, "read");
    this.assertDefined(op, at);
    const tokens = this.length(at);
    const tensors: SavedState["tensors"] = {};
    for (const { name, kind, dtype, shape, tensor } of this.tensors) {
      if (kind === "log" || (kind === "cache" && tokens === 0)) continue;
      if (kind === "fixed") {
        const fixed = this.fixedRows(name, at);
        tensors[name] = { dtype, shape: fixed.shape, data: await fixed.read() };
      } else {
        const data = await readCacheRows(tensor, at, 0, tokens);
        tensors[name] = { dtype, shape: [1, ...shape.slice(1, -2), tokens, tensor.lastDim], data };
      }
      signal?.throwIfAborted();
    }
    return { tokens, tensors };
  }

  /** Replaces the contents of one sequence (default: the first) by a saved one of the same model. */
  restore(saved: SavedState, sequence = 0): void {
    const op = "state.restore";
    const at = this.checkSequence(op, sequence);
    this.use.assertFree(op);
    const tokens = savedTokens(op, saved, this.capacity);
    // All is checked before anything is written.
    const writes = this.tensors.flatMap(({ name, kind, tensor }) => {
      if (kind === "log" || (kind === "cache" && tokens === 0)) return [];
      const fixed = kind === "fixed" ? this.fixedRows(name, at) : undefined;
      const shape = fixed?.shape ?? [1, ...tensor.shape.slice(1, -2), tokens, tensor.lastDim];
      return [{ tensor, fixed, data: savedData(op, saved, name, tensor.dtype, shape) as NumberArray }];
    });
    for (const { tensor, fixed, data } of writes)
      if (fixed) fixed.write(data);
      else writeCacheRows(tensor, at, 0, tokens, data);
    this.replaced(at, tokens);
  }

  /** Empties one sequence; without an argument, all. */
  reset(sequence?: number): void {
    const op = "state.reset";
    if (sequence !== undefined) this.checkSequence(op, sequence);
    this.assertLive();
    this.use.assertFree(op);
    const [begin, end] = sequence === undefined ? [0, this.sequences] : [sequence, sequence + 1];
    for (const { tensor, kind } of this.tensors) {
      if (kind !== "fixed") continue;
      const part = tensor.slice(begin, end);
      part.buffer.write(new Uint8Array(part.byteLength), part.byteOffset);
    }
    for (let at = begin; at < end; at++) this.replaced(at, 0);
  }

  /**
   * Takes back the last `tokens` tokens of the last pass (a `prefill`, a step of a `Decoder`): the state is then, to the
   * bit, the one that the pass went through before them. A number for all sequences, or one for each; a sequence with 0
   * stays as it is. At most the `rollback` that the state was made with, and no more tokens than the pass had; can be
   * repeated. A rollback that is canceled during its work is done all the same.
   */
  async rollback(tokens: number | readonly number[], options: CallOptions = {}): Promise<void> {
    const op = "state.rollback";
    const signal = signalOf(op, options);
    this.assertLive();
    const counts = this.rollbackCounts(op, tokens);
    using _ = this.begin(op);
    for (const [at, count] of counts.entries()) {
      const { undoable } = this.sequence(at);
      if (Number.isInteger(count) && count >= 0 && count <= undoable) continue;
      const where = this.sequences === 1 ? "" : ` in sequence ${at}`;
      const remedy = this.maxRollback === 0 ? "make the state with newState({ rollback })" : undefined;
      const rule = `be an integer from 0 to ${undoable}, what the last pass left to take back${where}`;
      throw wrongValue(op, "tokens", rule, count, remedy);
    }
    await this.runRollbacks(counts);
    signal?.throwIfAborted();
  }

  /** The argument of `rollback` as one number for each sequence. */
  private rollbackCounts(op: string, tokens: number | readonly number[]): number[] {
    if (typeof tokens === "number") return Array(this.sequences).fill(tokens);
    if (!Array.isArray(tokens)) throw wrongKind(op, "tokens", "be a number or an array of numbers", tokens);
    const rule = `have one entry for each of the state's ${this.sequences} sequences`;
    if (tokens.length !== this.sequences) throw wrongValue(op, "tokens", rule, tokens.length);
    return Array.from(tokens);
  }

  /** @internal Rolls back so many tokens of each sequence; the caller has checked that it can be done. */
  async runRollbacks(counts: readonly number[]): Promise<void> {
    const rollbacks = [...counts.entries()].flatMap(([at, count]) =>
      count > 0 ? [{ at, count, ...this.recordRollback(at) }] : [],
    );
    const work = rollbacks.map(async ({ at, count, rejected, recording }) => {
      rejected.write([count + this.sequence(at).undone]);
      return await recording.replay();
    });
    // When one of them fails, the others are waited for too: nothing is in flight after the call.
    await Promise.allSettled(work);
    for (const each of work) await this.settle(each);
    for (const { at, count } of rollbacks) {
      const sequence = this.sequence(at);
      sequence.length -= count;
      sequence.undoable -= count;
      sequence.undone += count;
    }
  }

  /** @internal The recorded rollback of one sequence; made when it is first asked for. */
  recordRollback(at: number): RecordedRollback {
    const known = this.rollbacks.get(at);
    if (known) return known;
    const rejected = this.device.tensor("i32", [1]);
    try {
      using encoder = this.device.encoder({ optimize: optimizeSteps(this.model.fusions) });
      this.model.encodeRollback(encoder, this, at, rejected);
      const rollback = { rejected, recording: encoder.finish() };
      this.rollbacks.set(at, rollback);
      return rollback;
    } catch (error) {
      rejected.dispose();
      throw error;
    }
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { sequences, capacity, lengths, maxRollback: rollback, disposed } = this;
    const bytes = this.tensors.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
    const { modelType } = this.model;
    return { type: "ModelState", modelType, sequences, capacity, lengths, rollback, bytes, disposed };
  }

  dispose(): void {
    this.isDisposed = true;
    for (const { recording, rejected } of this.rollbacks.values()) {
      recording.dispose();
      rejected.dispose();
    }
    this.rollbacks.clear();
    for (const { tensor } of this.tensors) tensor.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

printAsJson(ModelState);
