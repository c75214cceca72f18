import type * as api from "./api.ts";
import { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import { type ArrayOf, checkDtype, DTYPES, type Dtype, decodeNumbers, rawNumbers } from "./dtype.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import { identify, isOurs, printAsJson } from "./identity.ts";
import { checkOptionNames, type OptionNames } from "./options.ts";
import type { Range } from "./ranges.ts";
import { noteWrite, type Output, type Recorded } from "./recorded.ts";
import { bytesOf, copyShape, countOf } from "./shape.ts";

/** What a tensor's arena tells it: `generation` counts resets, and a tensor dies with the first reset after it was made. */
interface Generation {
  readonly generation: number;
}

interface Placement extends api.TensorPlacement {
  /** The arena that it comes from. */
  arena?: Generation | undefined;
  /** The arena's generation when the tensor was made. Default: the present one. */
  generation?: number | undefined;
  /** It may begin at any byte: see `anyByte` of a kernel's declaration. */
  anyByte?: boolean | undefined;
}

const PLACEMENT: OptionNames<Placement> = {
  byteOffset: true,
  owned: true,
  arena: true,
  generation: true,
  anyByte: true,
};

/** Where a tensor lies that core itself makes: all of it has been checked. */
class Known {
  readonly #size: number;
  readonly byteOffset: number;
  readonly owned: boolean;
  readonly arena: Generation | undefined;
  readonly generation: number | undefined;

  constructor(size: number, byteOffset: number, owned: boolean, arena?: Generation, generation?: number) {
    this.#size = size;
    this.byteOffset = byteOffset;
    this.owned = owned;
    this.arena = arena;
    this.generation = generation;
  }

  get size(): number {
    return this.#size;
  }

  /** Only this class makes objects that have its private field. */
  static is(value: unknown): value is Known {
    return value !== null && typeof value === "object" && #size in value;
  }
}

let handOutAs: (tensor: Tensor, output: Output) => void;

/** Of a tensor of bytes: the view of some of them that is like another tensor. */
export let viewLike: (bytes: Tensor, byteOffset: number, like: Pick<Tensor, "dtype" | "shape" | "size">) => Tensor;

/** A new buffer's whole tensor; the shape has been checked and copied. */
export const wholeTensor = <D extends Dtype>(
  buffer: Buffer,
  dtype: D,
  shape: readonly number[],
  size: number,
): Tensor<D> => new Tensor(buffer, dtype, shape, new Known(size, 0, true));

/** Notes that an encoder has handed out a tensor: until the encoder has run, the tensor holds no result. */
export function handOut<T extends Tensor>(tensor: T, { reference }: Recorded): T {
  handOutAs(tensor, { encoder: reference, written: false });
  return tensor;
}

/** The class behind `Tensor`. */
export class Tensor<D extends Dtype = Dtype> implements api.Tensor<D> {
  readonly buffer: Buffer;
  readonly byteOffset: number;
  readonly dtype: D;
  readonly shape: readonly number[];
  readonly size: number;
  readonly byteLength: number;
  readonly #owned: boolean;
  readonly #arena: Generation | undefined;
  readonly #generation: number | undefined;
  /** Kept, since each dispatch of the tensor asks for it. */
  #range: Range | undefined;
  /** Of a tensor that an encoder handed out, and of its views. */
  #output: Output | undefined;

  static {
    handOutAs = (tensor, output) => {
      tensor.#output = output;
    };
    viewLike = (bytes, byteOffset, { dtype, shape, size }) =>
      bytes.#derive(dtype, shape, size, bytes.byteOffset + byteOffset);
    identify("Tensor", Tensor, (value) => #owned in value);
    printAsJson(Tensor);
  }

  constructor(buffer: api.Buffer, dtype: D, shape: readonly number[], placement: Placement | Known = {}) {
    if (Known.is(placement)) {
      this.buffer = buffer as Buffer;
      this.byteOffset = placement.byteOffset;
      this.dtype = dtype;
      this.shape = shape;
      this.size = placement.size;
      this.byteLength = placement.size * DTYPES[dtype].bytesPerElement;
      this.#owned = placement.owned;
      this.#arena = placement.arena;
      this.#generation = placement.generation;
      Object.freeze(this);
      return;
    }
    const op = "Tensor";
    if (new.target !== Tensor) throw wrongKind(op, "constructor", "be called for a Tensor itself", "a subclass");
    if (!(buffer instanceof Buffer)) throw wrongKind(op, "buffer", "be a Buffer", buffer);
    checkDtype(op, dtype);
    const dims = copyShape(op, shape);
    const size = countOf(op, dims);
    const bytes = bytesOf(op, dtype, dims, size);
    checkOptionNames(op, placement, PLACEMENT);
    const { byteOffset = 0, owned = false, arena, generation, anyByte = false } = placement;
    if (arena !== undefined && !isOurs("Arena", arena)) throw wrongKind(op, "arena", "be an Arena", arena);
    const { bytesPerElement: unit } = DTYPES[dtype];
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    if (byteOffset % unit !== 0 && !anyByte)
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

  get device(): DeviceCore {
    return this.buffer.device;
  }

  /** What is known of it since an encoder handed it out. */
  get output(): Output | undefined {
    return this.#output;
  }

  get disposed(): boolean {
    return this.buffer.disposed || this.#arena?.generation !== this.#generation;
  }

  /** The generation of its arena that it was made in. */
  get generation(): number | undefined {
    return this.#generation;
  }

  /** The addresses of its elements. */
  get range(): Range {
    if (this.#range) return this.#range;
    const range = this.buffer.range(this.byteOffset, this.byteLength);
    // Scratch of a recording gets other addresses when the recording ends.
    if (!this.buffer.planned) this.#range = range;
    return range;
  }

  get lastDim(): number {
    return this.shape[this.shape.length - 1] as number;
  }

  /**
   * A view of the same buffer, which lies within this tensor; it dies with this tensor when the arena is reset. What is
   * known of the tensor's contents holds for the view.
   */
  #derive<E extends Dtype>(dtype: E, shape: readonly number[], size: number, byteOffset: number): Tensor<E> {
    const unit = DTYPES[dtype].bytesPerElement;
    if (byteOffset % unit !== 0 && this.byteOffset % DTYPES[this.dtype].bytesPerElement === 0)
      throw wrongValue("Tensor", "byteOffset", `be a multiple of ${unit} for ${dtype}`, byteOffset);
    const known = new Known(size, byteOffset, false, this.#arena, this.#generation);
    const view = new Tensor(this.buffer, dtype, shape, known);
    view.#output = this.#output;
    return view;
  }

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
    return this.#derive(this.dtype, dims, count, this.byteOffset + offset * DTYPES[this.dtype].bytesPerElement);
  }

  reshape(shape: readonly number[]): Tensor<D> {
    const dims = copyShape("tensor.reshape", shape);
    if (countOf("tensor.reshape", dims) !== this.size)
      throw wrongValue("tensor.reshape", "shape", `have ${this.size} elements`, dims);
    return this.#derive(this.dtype, dims, this.size, this.byteOffset);
  }

  slice(begin: number, end: number): Tensor<D> {
    const [first, ...rest] = this.shape as [number, ...number[]];
    if (!Number.isInteger(begin) || begin < 0 || begin >= first)
      throw wrongValue("tensor.slice", "begin", `be an integer from 0 to ${first - 1}`, begin);
    if (!Number.isInteger(end) || end <= begin || end > first)
      throw wrongValue("tensor.slice", "end", `be an integer from ${begin + 1} to ${first}`, end);
    return this.view((begin * this.size) / first, [end - begin, ...rest]);
  }

  cast<E extends Dtype>(dtype: E): Tensor<E> {
    checkDtype("tensor.cast", dtype);
    const bytes = this.lastDim * DTYPES[this.dtype].bytesPerElement;
    const { bytesPerElement: unit } = DTYPES[dtype];
    if (bytes % unit !== 0)
      throw wrongValue("tensor.cast", "dtype", `divide the last dimension's ${bytes} bytes`, dtype);
    const dims = copyShape("Tensor", [...this.shape.slice(0, -1), bytes / unit]);
    return this.#derive(dtype, dims, this.byteLength / unit, this.byteOffset);
  }

  private assertLive(): void {
    if (this.disposed) throw disposedError("tensor");
  }

  private raw(bytes: ArrayBuffer): ArrayOf<D> {
    return new DTYPES[this.dtype].array(bytes) as ArrayOf<D>;
  }

  /** Refuses to read what an encoder has recorded and nobody has run. */
  private assertComputed(op: string): void {
    this.assertLive();
    this.device.submissions.recorded.assertComputed(op, this);
  }

  async read(options: api.ReadOptions = {}): Promise<ArrayOf<D>> {
    this.assertComputed("tensor.read");
    return this.raw(await this.buffer.read(this.byteOffset, this.byteLength, options));
  }

  readSync(): ArrayOf<D> {
    this.assertComputed("tensor.readSync");
    return this.raw(this.buffer.readSync(this.byteOffset, this.byteLength));
  }

  async readNumbers(options: api.ReadOptions = {}): Promise<Float64Array> {
    this.assertComputed("tensor.readNumbers");
    return decodeNumbers(this.dtype, await this.read(options));
  }

  write(data: ArrayOf<D> | ArrayLike<number>): void {
    this.assertLive();
    this.buffer.write(rawNumbers("tensor.write", this.dtype, data, this.size), this.byteOffset);
    noteWrite(this);
  }

  typedArray(): ArrayOf<D> {
    this.assertComputed("tensor.typedArray");
    noteWrite(this);
    return new DTYPES[this.dtype].array(this.buffer.arrayBuffer(), this.byteOffset, this.size) as ArrayOf<D>;
  }

  dispose(): void {
    if (this.#owned) this.buffer.dispose();
  }

  toJSON(): api.TensorSummary {
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

/**
 * Whether two tensors are views of the same bytes of one buffer, whatever their dtypes and shapes.
 * @throws {ArgumentTypeError} when a value is not a Tensor.
 */
export function sameBytes(a: api.Tensor, b: api.Tensor): boolean {
  for (const [name, tensor] of Object.entries({ a, b }))
    if (!(tensor instanceof Tensor)) throw wrongKind("sameBytes", name, "be a Tensor", tensor);
  return a.buffer === b.buffer && a.byteOffset === b.byteOffset && a.byteLength === b.byteLength;
}
