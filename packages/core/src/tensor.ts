import type { Arena } from "./arena.ts";
import { Buffer, type ReadOptions } from "./buffer.ts";
import type { Device } from "./device.ts";
import { type ArrayOf, checkDtype, DTYPES, type Dtype, decodeNumbers, rawNumbers } from "./dtype.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import { identify, isOurs, printAsJson } from "./identity.ts";
import { checkOptionNames, type OptionNames } from "./options.ts";
import type { Range } from "./ranges.ts";
import { noteWrite, shareOutput } from "./recorded.ts";
import { bytesOf, copyShape, countOf } from "./shape.ts";

/** What `JSON.stringify` and `console.log` show of a tensor. */
export interface TensorSummary {
  readonly type: "Tensor";
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The device's kind. */
  readonly device: string;
  readonly buffer: { readonly byteLength: number; readonly readOnly: boolean };
  readonly byteOffset: number;
  readonly disposed: boolean;
}

interface Placement {
  byteOffset?: number;
  /** The tensor owns its buffer: disposing it disposes the buffer. */
  owned?: boolean;
  /** @internal The arena that it comes from: it dies with the next reset after `generation`. */
  arena?: Arena | undefined;
  /** @internal Default: the arena's present one. */
  generation?: number | undefined;
}

const PLACEMENT: OptionNames<Placement> = { byteOffset: true, owned: true, arena: true, generation: true };

/**
 * A view: buffer + byte offset + dtype + shape, row-major and contiguous. Views share storage and never copy. A tensor
 * is frozen: what was checked of it stays true.
 */
export class Tensor<D extends Dtype = Dtype> {
  readonly buffer: Buffer;
  readonly byteOffset: number;
  readonly dtype: D;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly byteLength: number;
  readonly #owned: boolean;
  readonly #arena: Arena | undefined;
  readonly #generation: number | undefined;

  static {
    identify("Tensor", Tensor, (value) => #owned in value);
    printAsJson(Tensor);
  }

  /** @throws TypeError or RangeError when the view is not one of its buffer */
  constructor(buffer: Buffer, dtype: D, shape: readonly number[], placement: Placement = {}) {
    const op = "Tensor";
    if (new.target !== Tensor) throw wrongKind(op, "constructor", "be called for a Tensor itself", "a subclass");
    if (!(buffer instanceof Buffer)) throw wrongKind(op, "buffer", "be a Buffer", buffer);
    checkDtype(op, dtype);
    const dims = copyShape(op, shape);
    const size = countOf(op, dims);
    const bytes = bytesOf(op, dtype, dims, size);
    checkOptionNames(op, placement, PLACEMENT);
    const { byteOffset = 0, owned = false, arena, generation } = placement;
    if (arena !== undefined && !isOurs("Arena", arena)) throw wrongKind(op, "arena", "be an Arena", arena);
    const { bytes: unit } = DTYPES[dtype];
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    if (byteOffset % unit !== 0)
      throw wrongValue(op, "byteOffset", `be a multiple of ${unit} for ${dtype}`, byteOffset);
    if (!Number.isSafeInteger(byteOffset + bytes) || byteOffset + bytes > buffer.byteLength)
      throw wrongValue(
        op,
        "shape",
        `fit its buffer of ${buffer.byteLength} bytes`,
        `[${dims.join(", ")}] ${dtype} at byte ${byteOffset}`,
      );
    this.buffer = buffer;
    this.byteOffset = byteOffset;
    this.dtype = dtype;
    this.shape = dims;
    this.size = size;
    this.byteLength = bytes;
    this.#owned = owned;
    this.#arena = arena;
    this.#generation = generation ?? arena?.generation;
    Object.freeze(this);
  }

  get device(): Device {
    return this.buffer.device;
  }

  get disposed(): boolean {
    return this.buffer.disposed || this.#arena?.generation !== this.#generation;
  }

  /** @internal The arena generation it belongs to. */
  get generation(): number | undefined {
    return this.#generation;
  }

  /** @internal The memory this view covers. */
  get range(): Range {
    return this.buffer.range(this.byteOffset, this.byteLength);
  }

  /** The size of the last dimension. */
  get lastDim(): number {
    return this.shape[this.shape.length - 1] as number;
  }

  /** A view of a tensor from before an arena's reset is as dead as that tensor. */
  #derive<E extends Dtype>(dtype: E, shape: readonly number[], byteOffset: number): Tensor<E> {
    const placement = { byteOffset, arena: this.#arena, generation: this.#generation };
    return shareOutput(new Tensor(this.buffer, dtype, shape, placement), this);
  }

  /** `shape` elements of this tensor from element `offset` on. */
  view(offset: number, shape: readonly number[]): Tensor<D> {
    const dims = copyShape("tensor.view", shape);
    const count = countOf("tensor.view", dims);
    if (!Number.isSafeInteger(offset) || offset < 0)
      throw wrongValue("tensor.view", "offset", "be an integer ≥ 0", offset);
    if (offset + count > this.size)
      throw wrongValue(
        "tensor.view",
        "shape",
        `stay within the tensor's ${this.size} elements`,
        `${count} from element ${offset}`,
      );
    return this.#derive(this.dtype, dims, this.byteOffset + offset * DTYPES[this.dtype].bytes);
  }

  /** The same elements under another shape. */
  reshape(shape: readonly number[]): Tensor<D> {
    const dims = copyShape("tensor.reshape", shape);
    if (countOf("tensor.reshape", dims) !== this.size)
      throw wrongValue("tensor.reshape", "shape", `have ${this.size} elements`, dims);
    return this.#derive(this.dtype, dims, this.byteOffset);
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
    checkDtype("tensor.cast", dtype);
    const bytes = this.lastDim * DTYPES[this.dtype].bytes;
    const { bytes: unit } = DTYPES[dtype];
    if (bytes % unit !== 0)
      throw wrongValue("tensor.cast", "dtype", `divide the last dimension's ${bytes} bytes`, dtype);
    return this.#derive(dtype, [...this.shape.slice(0, -1), bytes / unit], this.byteOffset);
  }

  private assertLive(): void {
    if (this.disposed) throw disposedError("tensor");
  }

  private raw(bytes: ArrayBuffer): ArrayOf<D> {
    return new DTYPES[this.dtype].array(bytes) as ArrayOf<D>;
  }

  /** What an encoder has recorded and nobody has run is no result yet. */
  private assertComputed(op: string): void {
    this.assertLive();
    this.device.submissions.recorded.assertComputed(op, this);
  }

  /**
   * A copy of the elements (16-bit floats as bits), once the work that writes them has ended. When the signal is aborted
   * before, it rejects with the signal's reason.
   * @throws RangeError when what writes them is recorded and has not been committed or replayed
   */
  async read(options: ReadOptions = {}): Promise<ArrayOf<D>> {
    this.assertComputed("tensor.read");
    return this.raw(await this.buffer.read(this.byteOffset, this.byteLength, options));
  }

  /** A copy of the elements now; an error while work in flight writes them. */
  readSync(): ArrayOf<D> {
    this.assertComputed("tensor.readSync");
    return this.raw(this.buffer.readSync(this.byteOffset, this.byteLength));
  }

  /** As `read`, but as numbers, exactly. */
  async readNumbers(options: ReadOptions = {}): Promise<Float64Array> {
    this.assertComputed("tensor.readNumbers");
    return decodeNumbers(this.dtype, await this.read(options));
  }

  /** Copies elements in: a raw typed array of this dtype as it is, any other numbers rounded to the dtype; integers must fit. */
  write(data: ArrayOf<D> | ArrayLike<number>): void {
    this.assertLive();
    this.buffer.write(rawNumbers("tensor.write", this.dtype, data, this.size), this.byteOffset);
    noteWrite(this);
  }

  /** The memory itself, valid until the next encode that writes it or until the buffer is disposed. */
  typedArray(): ArrayOf<D> {
    this.assertComputed("tensor.typedArray");
    noteWrite(this);
    return new DTYPES[this.dtype].array(this.buffer.arrayBuffer(), this.byteOffset, this.size) as ArrayOf<D>;
  }

  /** Disposes the buffer when this tensor owns it (made by `device.tensor`); views own nothing. */
  dispose(): void {
    if (this.#owned) this.buffer.dispose();
  }

  /** What the tensor is and where it lies; never its elements. */
  toJSON(): TensorSummary {
    const { dtype, shape, byteOffset, buffer } = this;
    const { byteLength, readOnly } = buffer;
    return {
      type: "Tensor",
      dtype,
      shape,
      device: buffer.device.kind,
      buffer: { byteLength, readOnly },
      byteOffset,
      disposed: this.disposed,
    };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
