import type { Arena } from "./arena.ts";
import type { Buffer } from "./buffer.ts";
import type { Device } from "./device.ts";
import { type ArrayOf, DTYPES, type Dtype, decodeNumbers, encodeNumbers, isDtype } from "./dtype.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import type { Range } from "./ranges.ts";

/** Elements of a shape; every dimension an integer from 1 to 2³¹−1, the product a safe integer. */
export function elementCount(op: string, shape: readonly number[], argument = "shape"): number {
  if (!Array.isArray(shape)) throw wrongKind(op, argument, "be an array of dimensions", shape);
  if (shape.length === 0) throw wrongValue(op, argument, "have at least one dimension", shape);
  let count = 1;
  for (const dim of shape) {
    if (!Number.isInteger(dim) || dim < 1 || dim > 0x7fffffff)
      throw wrongValue(op, argument, "have dimensions that are integers from 1 to 2147483647", shape);
    count *= dim;
    if (!Number.isSafeInteger(count)) throw wrongValue(op, argument, "have a number of elements below 2^53", shape);
  }
  return count;
}

/** Bytes of a tensor of that dtype and shape. */
export function tensorBytes(dtype: Dtype, shape: readonly number[], op = "tensorBytes"): number {
  const bytes = elementCount(op, shape) * DTYPES[dtype].bytes;
  if (!Number.isSafeInteger(bytes)) throw wrongValue(op, "shape", "have fewer than 2^53 bytes", shape);
  return bytes;
}

interface Placement {
  byteOffset?: number;
  /** The tensor owns its buffer: disposing it disposes the buffer. */
  owned?: boolean;
  arena?: { arena: Arena; generation: number } | undefined;
}

/** A view: buffer + byte offset + dtype + shape, row-major and contiguous. Views share storage and never copy. */
export class Tensor<D extends Dtype = Dtype> {
  readonly buffer: Buffer;
  readonly byteOffset: number;
  readonly dtype: D;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly bytes: number;
  private readonly owned: boolean;
  private readonly arena: Placement["arena"];

  constructor(
    buffer: Buffer,
    dtype: D,
    shape: readonly number[],
    { byteOffset = 0, owned = false, arena }: Placement = {},
  ) {
    const op = "Tensor";
    if (!isDtype(dtype)) throw wrongValue(op, "dtype", `be one of ${Object.keys(DTYPES).join(", ")}`, dtype);
    this.size = elementCount(op, shape);
    this.bytes = tensorBytes(dtype, shape, op);
    const { bytes: unit } = DTYPES[dtype];
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    if (byteOffset % unit !== 0)
      throw wrongValue(op, "byteOffset", `be a multiple of ${unit} for ${dtype}`, byteOffset);
    if (!Number.isSafeInteger(byteOffset + this.bytes) || byteOffset + this.bytes > buffer.bytes)
      throw wrongValue(
        op,
        "shape",
        `fit its buffer of ${buffer.bytes} bytes`,
        `[${shape.join(", ")}] ${dtype} at byte ${byteOffset}`,
      );
    this.buffer = buffer;
    this.byteOffset = byteOffset;
    this.dtype = dtype;
    this.shape = Object.freeze([...shape]);
    this.owned = owned;
    this.arena = arena;
  }

  get device(): Device {
    return this.buffer.device;
  }

  get disposed(): boolean {
    return this.buffer.disposed || (this.arena !== undefined && this.arena.arena.generation !== this.arena.generation);
  }

  /** @internal The arena generation it belongs to. */
  get generation(): number | undefined {
    return this.arena?.generation;
  }

  /** @internal The memory this view covers. */
  get range(): Range {
    return this.buffer.range(this.byteOffset, this.bytes);
  }

  /** The size of the last dimension. */
  get lastDim(): number {
    return this.shape[this.shape.length - 1] as number;
  }

  private derive<E extends Dtype>(dtype: E, shape: readonly number[], byteOffset: number): Tensor<E> {
    return new Tensor(this.buffer, dtype, shape, { byteOffset, arena: this.arena });
  }

  /** `shape` elements of this tensor from element `offset` on. */
  view(offset: number, shape: readonly number[]): Tensor<D> {
    const count = elementCount("tensor.view", shape);
    if (!Number.isSafeInteger(offset) || offset < 0)
      throw wrongValue("tensor.view", "offset", "be an integer ≥ 0", offset);
    if (offset + count > this.size)
      throw wrongValue(
        "tensor.view",
        "shape",
        `stay within the tensor's ${this.size} elements`,
        `${count} from element ${offset}`,
      );
    return this.derive(this.dtype, shape, this.byteOffset + offset * DTYPES[this.dtype].bytes);
  }

  /** The same elements under another shape. */
  reshape(shape: readonly number[]): Tensor<D> {
    if (elementCount("tensor.reshape", shape) !== this.size)
      throw wrongValue("tensor.reshape", "shape", `have ${this.size} elements`, shape);
    return this.derive(this.dtype, shape, this.byteOffset);
  }

  /** Rows `begin` … `end − 1` of the first axis. */
  slice(begin: number, end: number): Tensor<D> {
    const [first, ...rest] = this.shape as [number, ...number[]];
    if (!Number.isInteger(begin) || begin < 0 || begin >= first)
      throw wrongValue("tensor.slice", "begin", `be an integer from 0 to ${first - 1}`, begin);
    if (!Number.isInteger(end) || end <= begin || end > first)
      throw wrongValue("tensor.slice", "end", `be an integer from ${begin + 1} to ${first}`, end);
    return this.view((begin * this.size) / first, [end - begin, ...rest]);
  }

  /** The same bytes as another dtype; the last dimension is rescaled. */
  cast<E extends Dtype>(dtype: E): Tensor<E> {
    const bytes = this.lastDim * DTYPES[this.dtype].bytes;
    const { bytes: unit } = DTYPES[dtype];
    if (bytes % unit !== 0)
      throw wrongValue("tensor.cast", "dtype", `divide the last dimension's ${bytes} bytes`, dtype);
    return this.derive(dtype, [...this.shape.slice(0, -1), bytes / unit], this.byteOffset);
  }

  private assertLive(): void {
    if (this.disposed) throw disposedError("tensor");
  }

  private raw(bytes: ArrayBuffer): ArrayOf<D> {
    return new DTYPES[this.dtype].array(bytes) as ArrayOf<D>;
  }

  /** A copy of the elements (16-bit floats as bits), once the work that writes them has ended. */
  async read(): Promise<ArrayOf<D>> {
    this.assertLive();
    return this.raw(await this.buffer.read(this.byteOffset, this.bytes));
  }

  /** A copy of the elements now; an error while work in flight writes them. */
  readSync(): ArrayOf<D> {
    this.assertLive();
    return this.raw(this.buffer.readSync(this.byteOffset, this.bytes));
  }

  /** A copy of the elements as numbers, exactly, once the work that writes them has ended. */
  async readNumbers(): Promise<Float64Array> {
    return decodeNumbers(this.dtype, await this.read());
  }

  /** Copies elements in: a raw typed array of this dtype as it is, any other numbers rounded to the dtype. */
  write(data: ArrayOf<D> | ArrayLike<number>): void {
    this.assertLive();
    if (data.length !== this.size) throw wrongValue("tensor.write", "data", `have ${this.size} elements`, data.length);
    const raw = data instanceof DTYPES[this.dtype].array ? data : encodeNumbers(this.dtype, data as ArrayLike<number>);
    this.buffer.write(raw, this.byteOffset);
  }

  /** The memory itself, valid until the next encode that writes it or until the buffer is disposed. */
  typedArray(): ArrayOf<D> {
    this.assertLive();
    return new DTYPES[this.dtype].array(this.buffer.arrayBuffer(), this.byteOffset, this.size) as ArrayOf<D>;
  }

  /** Disposes the buffer when this tensor owns it (made by `device.tensor`); views own nothing. */
  dispose(): void {
    if (this.owned) this.buffer.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
