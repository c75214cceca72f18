import { type Device, type Dtype, MlxtsError, type RawArray, type Tensor, wrongValue } from "@mlxts/core";

/** A state's contents on the host. */
export interface SavedState {
  tokens: number;
  tensors: Record<string, { dtype: Dtype; shape: readonly number[]; data: RawArray }>;
}

/** A tensor of a state. Caches have one row for each token along their second-last axis. */
export interface StateTensor {
  tensor: Tensor;
  cache: boolean;
}

/** What a model remembers of a sequence: recurrent and convolution states of fixed size, key and value caches of `capacity` rows. */
export class ModelState {
  readonly device: Device;
  /** The longest sequence the caches hold. */
  readonly capacity: number;
  /** @internal */
  readonly tensors: Readonly<Record<string, StateTensor>>;
  private count = 0;
  private gone = false;

  /** @internal Use `model.newState`. */
  constructor(device: Device, capacity: number, tensors: Record<string, StateTensor>) {
    this.device = device;
    this.capacity = capacity;
    this.tensors = tensors;
  }

  /** Tokens seen so far. */
  get tokens(): number {
    return this.count;
  }

  /** @internal */
  advance(tokens: number): void {
    this.count += tokens;
  }

  /** @internal */
  assertRoom(op: string, tokens: number): void {
    if (this.gone) throw new MlxtsError("Disposed", "the model state has been disposed", { what: "model state" });
    if (this.count + tokens > this.capacity)
      throw wrongValue(
        op,
        "ids",
        `fit the context of ${this.capacity} tokens`,
        `${this.count} tokens before and ${tokens} more`,
      );
  }

  /** @internal */
  tensor(name: string): Tensor {
    return (this.tensors[name] as StateTensor).tensor;
  }

  /** A copy of everything that later tokens depend on; caches up to the last token. Restoring it is exact to the bit. */
  async save(): Promise<SavedState> {
    const tensors: SavedState["tensors"] = {};
    for (const [name, { tensor, cache }] of Object.entries(this.tensors)) {
      if (cache && this.count === 0) continue;
      if (!cache) {
        tensors[name] = { dtype: tensor.dtype, shape: tensor.shape, data: await tensor.read() };
        continue;
      }
      const parts = await Promise.all(this.cacheRows(tensor, this.count).map((rows) => rows.read()));
      const first = parts[0] as RawArray;
      const data = new (first.constructor as new (length: number) => Exclude<RawArray, BigInt64Array>)(
        first.length * parts.length,
      );
      parts.forEach((part, i) => {
        data.set(part as Exclude<RawArray, BigInt64Array>, i * first.length);
      });
      tensors[name] = { dtype: tensor.dtype, shape: [...tensor.shape.slice(0, -2), this.count, tensor.lastDim], data };
    }
    return { tokens: this.count, tensors };
  }

  /** The first `tokens` rows of each head of a cache, as views. */
  private cacheRows(tensor: Tensor, tokens: number): Tensor[] {
    const perHead = this.capacity * tensor.lastDim;
    return Array.from({ length: tensor.size / perHead }, (_, head) =>
      tensor.view(head * perHead, [tokens, tensor.lastDim]),
    );
  }

  /** Replaces the contents with a saved state of the same model. */
  restore(saved: SavedState): void {
    const op = "state.restore";
    this.assertRoom(op, 0);
    if (!Number.isInteger(saved.tokens) || saved.tokens < 0 || saved.tokens > this.capacity)
      throw wrongValue(op, "saved", `hold at most ${this.capacity} tokens`, saved.tokens);
    const expected = Object.entries(this.tensors).map(([name, { tensor, cache }]) => {
      const shape = cache ? [...tensor.shape.slice(0, -2), saved.tokens, tensor.lastDim] : [...tensor.shape];
      const found = saved.tensors[name];
      const empty = cache && saved.tokens === 0;
      if (
        !empty &&
        (!found ||
          found.dtype !== tensor.dtype ||
          found.shape.join() !== shape.join() ||
          found.data.length !== shape.reduce((a, b) => a * b, 1))
      )
        throw wrongValue(
          op,
          "saved",
          `have \`${name}\` as ${tensor.dtype} [${shape.join(", ")}]`,
          found ? `${found.dtype} [${found.shape.join(", ")}]` : "nothing",
        );
      return { tensor, cache: cache && !empty, skip: empty, data: found?.data as RawArray };
    });
    for (const { tensor, cache, skip, data } of expected) {
      if (skip) continue;
      if (!cache) tensor.write(data as never);
      else {
        const rows = this.cacheRows(tensor, saved.tokens);
        const size = data.length / rows.length;
        rows.forEach((row, head) => {
          row.write(data.subarray(head * size, (head + 1) * size) as never);
        });
      }
    }
    this.count = saved.tokens;
  }

  /** Forgets the sequence. */
  reset(): void {
    this.assertRoom("state.reset", 0);
    for (const { tensor, cache } of Object.values(this.tensors))
      if (!cache) tensor.buffer.write(new Uint8Array(tensor.bytes), tensor.byteOffset);
    this.count = 0;
  }

  dispose(): void {
    this.gone = true;
    for (const { tensor } of Object.values(this.tensors)) tensor.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
