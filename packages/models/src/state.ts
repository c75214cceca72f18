import {
  type CommandEncoder,
  type Device,
  type Dtype,
  MlxtsError,
  type RawArray,
  type Recording,
  type Tensor,
  wrongKind,
  wrongValue,
} from "@mlxts/core";

type NumberArray = Exclude<RawArray, BigInt64Array>;

/** One sequence of a state on the host. */
export interface SavedState {
  tokens: number;
  tensors: Record<string, { dtype: Dtype; shape: readonly number[]; data: RawArray }>;
}

export interface StateOptions {
  /** Tokens that each sequence has room for. Default: the model's context length. */
  capacity?: number;
  /** Sequences side by side. Default 1. */
  sequences?: number;
  /** The most tokens that `rollback` can take back, up to 64. Default 0, which costs nothing. */
  rollback?: number;
}

/** A tensor of a state, sequences along its first axis. */
export interface StateSpec {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
  /**
   * `fixed`: what a sequence's tokens add up to. `cache`: one row for each token along the second-last axis. `log`: what
   * a rollback needs of the last pass.
   */
  kind: "fixed" | "cache" | "log";
  /** Of a fixed tensor only the last so many rows of the second axis count; default: all. */
  tail?: number | undefined;
}

type StateTensor = StateSpec & { tensor: Tensor };

export interface StateParts {
  tensors: readonly StateSpec[];
  capacity: number;
  sequences: number;
  rollback: number;
  /** Records how fixed tensors lose the last `rejected` (i32 [sequences]) tokens of the last pass. */
  encodeRollback(encoder: CommandEncoder, state: ModelState, rejected: Tensor): void;
}

/** `value` if it is an integer from `min` to `max`. */
export function checkInteger(op: string, argument: string, value: unknown, min: number, max = Infinity): number {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    const rule = max === Infinity ? `be an integer ≥ ${min}` : `be an integer from ${min} to ${max}`;
    throw wrongValue(op, argument, rule, value);
  }
  return value as number;
}

/**
 * What a model remembers of its sequences: recurrent and convolution states of fixed size, key and value caches of
 * `capacity` rows.
 */
export class ModelState {
  readonly device: Device;
  /** The longest sequence the caches hold. */
  readonly capacity: number;
  readonly sequences: number;
  /** The most tokens that `rollback` takes back. */
  readonly maxRollback: number;
  /** @internal */
  readonly parts: readonly StateTensor[];
  private readonly encodeRollback: StateParts["encodeRollback"];
  private readonly counts: number[];
  /** Of each sequence, tokens of the last pass that can still be taken back, and those that were. */
  private readonly left: number[];
  private readonly taken: number[];
  private undo: { rejected: Tensor; recording: Recording } | undefined;
  private gone = false;

  /** @internal Use `model.newState`. */
  constructor(device: Device, { tensors, capacity, sequences, rollback, encodeRollback }: StateParts) {
    this.device = device;
    this.capacity = capacity;
    this.sequences = sequences;
    this.maxRollback = rollback;
    this.parts = tensors.map((spec) => ({ ...spec, tensor: device.tensor(spec.dtype, spec.shape) }));
    this.encodeRollback = encodeRollback;
    this.counts = Array(sequences).fill(0);
    this.left = Array(sequences).fill(0);
    this.taken = Array(sequences).fill(0);
  }

  /** Tokens seen so far, by all sequences together. */
  get tokens(): number {
    return this.counts.reduce((sum, count) => sum + count, 0);
  }

  /** Tokens that each sequence has seen. */
  get lengths(): readonly number[] {
    return [...this.counts];
  }

  /** @internal Tokens that sequence `at` has seen. */
  length(at: number): number {
    return this.counts[at] as number;
  }

  /** @internal A pass has gone through; `logged`: its last tokens can be taken back. */
  advance(counts: readonly number[], logged: boolean): void {
    for (let at = 0; at < counts.length; at++) {
      const count = counts[at] as number;
      this.counts[at] = this.length(at) + count;
      this.left[at] = logged ? Math.min(count, this.maxRollback) : 0;
      this.taken[at] = 0;
    }
  }

  private assertLive(): void {
    if (this.gone) throw new MlxtsError("Disposed", "the model state has been disposed", { what: "model state" });
  }

  /** @internal */
  assertRoom(op: string, counts: readonly number[], argument = "ids"): void {
    this.assertLive();
    for (let at = 0; at < counts.length; at++) {
      const tokens = counts[at] as number;
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

  /** @internal Rows `begin` … `end − 1` of one sequence's cache [1, heads, capacity, D], a view for each head. */
  cacheRows(tensor: Tensor, sequence: number, begin: number, end: number): Tensor[] {
    const cache = tensor.slice(sequence, sequence + 1);
    const perHead = this.capacity * tensor.lastDim;
    return Array.from({ length: cache.size / perHead }, (_, head) =>
      cache.view(head * perHead + begin * tensor.lastDim, [end - begin, tensor.lastDim]),
    );
  }

  /** @internal The same rows on the host, head after head. */
  async readCacheRows(tensor: Tensor, sequence: number, begin: number, end: number): Promise<NumberArray> {
    const heads = this.cacheRows(tensor, sequence, begin, end);
    const parts = (await Promise.all(heads.map((rows) => rows.read()))) as NumberArray[];
    const first = parts[0] as NumberArray;
    const data = new (first.constructor as new (length: number) => NumberArray)(first.length * parts.length);
    parts.forEach((part, i) => {
      data.set(part, i * first.length);
    });
    return data;
  }

  /** @internal */
  writeCacheRows(tensor: Tensor, sequence: number, begin: number, end: number, data: NumberArray): void {
    const heads = this.cacheRows(tensor, sequence, begin, end);
    const size = data.length / heads.length;
    heads.forEach((rows, head) => {
      rows.write(data.subarray(head * size, (head + 1) * size));
    });
  }

  /** @internal What was copied in from elsewhere: nothing of it can be taken back. */
  jump(sequence: number, tokens: number): void {
    this.counts[sequence] = tokens;
    this.left[sequence] = 0;
  }

  private checkSequence(op: string, sequence: number): number {
    this.assertLive();
    return checkInteger(op, "sequence", sequence, 0, this.sequences - 1);
  }

  /**
   * A copy of everything that later tokens of one sequence (default: the first) depend on; caches up to the last token.
   * Restoring it, there or in another state of the model, is exact to the bit.
   */
  async save(sequence = 0): Promise<SavedState> {
    const at = this.checkSequence("state.save", sequence);
    const tokens = this.length(at);
    const tensors: SavedState["tensors"] = {};
    for (const { name, kind, dtype, shape, tensor } of this.parts) {
      if (kind === "fixed") {
        const fixed = this.fixedPart(name, at);
        tensors[name] = { dtype, shape: fixed.shape, data: await fixed.read() };
      }
      if (kind !== "cache" || tokens === 0) continue;
      const data = await this.readCacheRows(tensor, at, 0, tokens);
      tensors[name] = { dtype, shape: [1, ...shape.slice(1, -2), tokens, tensor.lastDim], data };
    }
    return { tokens, tensors };
  }

  /** Replaces the contents of one sequence (default: the first) with a saved one of the same model. */
  restore(saved: SavedState, sequence = 0): void {
    const op = "state.restore";
    const at = this.checkSequence(op, sequence);
    const { tokens } = saved;
    if (!Number.isInteger(tokens) || tokens < 0 || tokens > this.capacity)
      throw wrongValue(op, "saved", `hold at most ${this.capacity} tokens`, tokens);
    const writes = this.parts.flatMap(({ name, kind, tensor }) => {
      if (kind === "log" || (kind === "cache" && tokens === 0)) return [];
      const fixed = kind === "fixed" ? this.fixedPart(name, at) : undefined;
      const shape = fixed?.shape ?? [1, ...tensor.shape.slice(1, -2), tokens, tensor.lastDim];
      const found = saved.tensors[name];
      if (
        !found ||
        found.dtype !== tensor.dtype ||
        found.shape.join() !== shape.join() ||
        found.data.length !== shape.reduce((a, b) => a * b, 1)
      )
        throw wrongValue(
          op,
          "saved",
          `have \`${name}\` as ${tensor.dtype} [${shape.join(", ")}]`,
          found ? `${found.dtype} [${found.shape.join(", ")}]` : "nothing",
        );
      return [{ tensor, fixed, data: found.data as NumberArray }];
    });
    for (const { tensor, fixed, data } of writes)
      if (fixed) fixed.write(data);
      else this.writeCacheRows(tensor, at, 0, tokens, data);
    this.jump(at, tokens);
  }

  /** Forgets one sequence; without an argument, all. */
  reset(sequence?: number): void {
    const op = "state.reset";
    if (sequence !== undefined) this.checkSequence(op, sequence);
    this.assertLive();
    const [begin, end] = sequence === undefined ? [0, this.sequences] : [sequence, sequence + 1];
    for (const { tensor, kind } of this.parts) {
      if (kind !== "fixed") continue;
      const part = tensor.slice(begin, end);
      part.buffer.write(new Uint8Array(part.bytes), part.byteOffset);
    }
    for (let at = begin; at < end; at++) this.jump(at, 0);
  }

  /**
   * Takes back the last `tokens` tokens of the last pass (a `prefill`, a step of a `Decoder`): the state is then, to the
   * bit, the one that the pass went through before them. A number for all sequences, or one for each. At most the
   * `rollback` that the state was made with, and no more than the pass had; can be repeated.
   */
  async rollback(tokens: number | readonly number[]): Promise<void> {
    const op = "state.rollback";
    this.assertLive();
    if (typeof tokens !== "number" && !Array.isArray(tokens))
      throw wrongKind(op, "tokens", "be a number or an array of numbers", tokens);
    const each: readonly number[] = typeof tokens === "number" ? Array(this.sequences).fill(tokens) : tokens;
    if (each.length !== this.sequences)
      throw wrongValue(op, "tokens", `have one entry for each of the state's ${this.sequences} sequences`, each.length);
    for (const [at, count] of each.entries()) {
      const left = this.left[at] as number;
      if (Number.isInteger(count) && count >= 0 && count <= left) continue;
      const where = this.sequences === 1 ? "" : ` in sequence ${at}`;
      const remedy = this.maxRollback === 0 ? "make the state with newState({ rollback })" : undefined;
      const rule = `be an integer from 0 to ${left}, what the last pass left to take back${where}`;
      throw wrongValue(op, "tokens", rule, count, remedy);
    }
    if (each.every((count) => count === 0)) return;
    const { rejected, recording } = this.recordedRollback();
    rejected.write(each.map((count, at) => count + (this.taken[at] as number)));
    const submission = recording.replay();
    for (const [at, count] of each.entries()) {
      this.counts[at] = this.length(at) - count;
      this.left[at] = (this.left[at] as number) - count;
      this.taken[at] = (this.taken[at] as number) + count;
    }
    await submission;
  }

  private recordedRollback(): { rejected: Tensor; recording: Recording } {
    if (this.undo) return this.undo;
    const rejected = this.device.tensor("i32", [this.sequences]);
    try {
      using encoder = this.device.encoder();
      this.encodeRollback(encoder, this, rejected);
      this.undo = { rejected, recording: encoder.finish() };
    } catch (error) {
      rejected.dispose();
      throw error;
    }
    return this.undo;
  }

  dispose(): void {
    this.gone = true;
    this.undo?.recording.dispose();
    this.undo?.rejected.dispose();
    this.undo = undefined;
    for (const { tensor } of this.parts) tensor.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
