// The types of core's objects, as programs see them. A device makes buffers, tensors, arenas and encoders, and each of
// these names its device: the types refer to each other, so they stand in one file. The classes behind them have files of
// their own, which import these types and not each other in a circle.
import type { CommitOptions } from "./commit_options.ts";
import type { DeviceCounters } from "./counters.ts";
import type { DeviceKind, DeviceOptions } from "./device_options.ts";
import type { ArrayOf, Dtype } from "./dtype.ts";
import type { Fusion } from "./fusion.ts";
import type { Access, Kernel, Scalar } from "./kernel.ts";
import type { LibraryDefinition } from "./library_definition.ts";
import type { DeviceLimits } from "./native.ts";

/** Where work runs. Several may be open at once; everything made from a device belongs to it. */
export interface Device {
  readonly kind: DeviceKind;
  /** Whether it is a GPU: launch rules then divide work among many small threads. */
  readonly gpu: boolean;
  /** The hardware's name. */
  readonly name: string;
  /** The instruction-set level of the kernels that run. */
  readonly level: string;
  /** Whether the host reaches the device's memory itself: only then there are `wrap` and `arrayBuffer`. */
  readonly unifiedMemory: boolean;
  readonly limits: Readonly<DeviceLimits>;
  readonly validate: boolean;
  readonly poison: boolean;
  readonly disposed: boolean;
  /** A snapshot of the counters. */
  readonly counters: DeviceCounters;

  /** A zero-filled buffer. */
  buffer(byteLength: number): Buffer;
  /** A buffer with a copy of the bytes. */
  bufferFrom(data: ArrayBufferView): Buffer;
  /**
   * A buffer over memory that stays where it is. The memory lives until the buffer is disposed and idle, whatever becomes of
   * the array: also a SharedArrayBuffer, or what `tensor.typedArray()` shows of another buffer, which may be disposed.
   * A plain ArrayBuffer can no longer be transferred; where Node.js cannot prevent that (21 to 23, early 24) it is
   * refused, and so are resizable ones everywhere. When `WebAssembly.Memory.grow` takes the bytes away, the buffer counts
   * as disposed.
   */
  wrap(memory: ArrayBufferView, options?: WrapOptions): Buffer;
  /**
   * A read-only buffer over the first `byteLength` bytes of a file, mapped: nothing is read before it is used. The file
   * must not shrink while the buffer lives. A device with memory of its own (see `unifiedMemory`), and `map: false`, give a
   * copy instead, which other threads make: the event loop goes on, and the file is not needed afterwards.
   * @throws MlxtsError `Io`, `BufferAllocation`, `CommandBuffer`; the reason of `signal` when it is aborted. Nothing is left
   *   of the copy then
   */
  mapFile(path: string, byteLength: number, options?: FileOptions): Promise<Buffer>;
  /** A tensor with a buffer of its own: zeros, or `data` (a raw typed array of the dtype as it is, other numbers rounded). */
  tensor<D extends Dtype>(dtype: D, shape: readonly number[], data?: ArrayOf<D> | ArrayLike<number>): Tensor<D>;
  /** Scratch for outputs and intermediate tensors. With `grow` it takes more memory instead of refusing. */
  arena(byteLength: number, options?: ArenaOptions): Arena;
  encoder(options?: EncoderOptions): CommandEncoder;
  /**
   * Checks a call of an op once: `inputs` has `{ dtype, shape }` where the call has tensors, and what the call would
   * refuse is refused. The record is encoded with tensors as often as wanted, for passes that are recorded anew each time.
   */
  bake(op: BakedOp, inputs: object, options?: object): OpRecord;
  /** A package's kernels on this device; opened once. */
  library(definition: LibraryDefinition): Library;
  resetCounters(): void;

  /** Waits for work in flight, then releases everything; later use of anything made from the device is an error. */
  dispose(): void;
  [Symbol.dispose](): void;
  /** What the device is. */
  toJSON(): { type: "Device"; kind: DeviceKind; name: string; level: string; threads: number; disposed: boolean };
}

/** What `instanceof` takes, without a constructor to call. */
type InstanceTest<T> = abstract new (...args: never) => T;

/** The class of devices. */
export interface DeviceClass extends InstanceTest<Device> {
  /**
   * Opens a device: the kind asked for, else `MLXTS_DEVICE`, else the best there is.
   * @throws MlxtsError `DeviceNotFound` with `details.tried`
   */
  open(kind?: DeviceKind, options?: DeviceOptions): Device;
}

export interface WrapOptions {
  /** Refuse to write to it. Default `false`. */
  readOnly?: boolean | undefined;
}

export interface FileOptions {
  /**
   * `false`: files are read into memory, so that they may change once they are open. Default `true`: they are mapped where the
   * device reaches mapped files, and a file that becomes shorter ends the process with SIGBUS (`explainTruncatedFiles`).
   */
  map?: boolean | undefined;
  /**
   * Called while bytes are copied, each 64 MiB or so, and when all are there: with how many are, and how many there are in
   * all. Where files are mapped it is only called when they are. What it throws ends the copy.
   */
  onProgress?: ((loaded: number, total: number) => void) | undefined;
  /** Aborted: the copy ends, and the call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/**
 * Bytes that a device can reach. Made by `device.buffer` (zero-filled), `device.bufferFrom` (a copy) or `device.wrap` (no copy).
 * A buffer may be disposed while work in flight uses it: the object is dead at once, the memory goes after its last use.
 */
export interface Buffer {
  readonly device: Device;
  /** The length asked for; what the device rounds up is never visible. */
  readonly byteLength: number;
  readonly readOnly: boolean;
  readonly disposed: boolean;

  /** A copy of the bytes, once the work that writes them has ended. */
  read(byteOffset?: number, byteLength?: number, options?: ReadOptions): Promise<ArrayBuffer>;
  /** A copy of the bytes now; an error while work in flight writes them. */
  readSync(byteOffset?: number, byteLength?: number): ArrayBuffer;
  /** Copies `data` in; an error while work in flight reads or writes the range. */
  write(data: ArrayBufferView, byteOffset?: number): void;
  /**
   * The memory itself as an ArrayBuffer, for programs that fill or read it in place. It is emptied when the buffer is
   * disposed (one that `markAsUntransferable` has marked, from Node.js 24 on, cannot be emptied: it keeps the memory
   * instead). Another buffer that wraps it also keeps the memory, and goes on working.
   */
  arrayBuffer(): ArrayBuffer;

  dispose(): void;
  [Symbol.dispose](): void;
  /** What the buffer is and where it lies. */
  toJSON(): { type: "Buffer"; byteLength: number; readOnly: boolean; device: string; disposed: boolean };
}

export interface ReadOptions {
  /** Aborted: the read rejects with the signal's reason, and the work goes on. */
  signal?: AbortSignal | undefined;
}

/**
 * A view: buffer + byte offset + dtype + shape, row-major and contiguous. Views share storage and never copy. A tensor
 * is frozen: what was checked of it stays true.
 */
export interface Tensor<D extends Dtype = Dtype> {
  readonly buffer: Buffer;
  readonly byteOffset: number;
  readonly dtype: D;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly byteLength: number;
  readonly device: Device;
  readonly disposed: boolean;
  /** The size of the last dimension. */
  readonly lastDim: number;

  /** `shape` elements of this tensor from element `offset` on. */
  view(offset: number, shape: readonly number[]): Tensor<D>;
  /** The same elements under another shape. */
  reshape(shape: readonly number[]): Tensor<D>;
  /** Rows `begin` … `end − 1` of the first axis. */
  slice(begin: number, end: number): Tensor<D>;
  /** The same bytes as another dtype; the last dimension is rescaled. */
  cast<E extends Dtype>(dtype: E): Tensor<E>;

  /**
   * A copy of the elements (16-bit floats as bits), once the work that writes them has ended. When the signal is aborted
   * before, it rejects with the signal's reason.
   * @throws RangeError when what writes them is recorded and has not been committed or replayed
   */
  read(options?: ReadOptions): Promise<ArrayOf<D>>;
  /** A copy of the elements now; an error while work in flight writes them. */
  readSync(): ArrayOf<D>;
  /** As `read`, but as numbers, exactly. */
  readNumbers(options?: ReadOptions): Promise<Float64Array>;
  /** Copies elements in: a raw typed array of this dtype as it is, any other numbers rounded to the dtype; integers must fit. */
  write(data: ArrayOf<D> | ArrayLike<number>): void;
  /** The memory itself, valid until work that writes it is recorded or the buffer is disposed. */
  typedArray(): ArrayOf<D>;

  /** Disposes the buffer when this tensor owns it (made by `device.tensor`); views own nothing. */
  dispose(): void;
  [Symbol.dispose](): void;
  /** What the tensor is and where it lies; never its elements. */
  toJSON(): TensorSummary;
}

/** The class of tensors. */
export interface TensorClass {
  /** @throws TypeError or RangeError when the view does not fit its buffer */
  new <D extends Dtype = Dtype>(
    buffer: Buffer,
    dtype: D,
    shape: readonly number[],
    placement?: TensorPlacement,
  ): Tensor<D>;
}

export interface TensorPlacement {
  /** Default 0. */
  byteOffset?: number;
  /** The tensor owns its buffer: disposing it disposes the buffer. Default `false`. */
  owned?: boolean;
}

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

/**
 * Scratch for one forward pass: blocks of memory handed out in order and taken back all at once by `reset()`.
 * Contents are undefined. Tensors from before a reset are dead; work in flight that still uses them is ordered before
 * later work by the device, so a reset never waits.
 */
export interface Arena {
  readonly device: Device;
  /** Bytes held from the device. */
  readonly byteLength: number;
  /** Bytes handed out and not taken back; in an arena that has grown, with what was left over in full blocks. */
  readonly used: number;
  /** Bytes that can still be handed out; Infinity when the arena grows. */
  readonly free: number;
  /** The largest `used` since the arena was made. */
  readonly peakBytes: number;
  readonly disposed: boolean;

  /** An uninitialized tensor. */
  alloc<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D>;
  /** The current place; `rewind` takes back what was handed out after it. It is good until the arena is rewound past it or reset. */
  mark(): ArenaMark;
  /**
   * Hands the memory after `mark` out again, within the same recording: the layers of a model share one layer's scratch.
   * Dispatches recorded before stay valid (barriers keep the order); new ones must not use tensors from after the mark.
   * @throws RangeError when the mark is not of this arena, or the arena was rewound past it or reset since
   */
  rewind(mark: ArenaMark): void;
  /** Takes every block back. */
  reset(): void;

  dispose(): void;
  [Symbol.dispose](): void;
  /** What the arena holds. */
  toJSON(): { type: "Arena"; device: string; byteLength: number; used: number; peakBytes: number; disposed: boolean };
}

export interface ArenaOptions {
  /** Take more memory instead of refusing. Default `false`. */
  grow?: boolean | undefined;
}

/** A place in an arena, to rewind to. */
export interface ArenaMark {
  readonly block: number;
  readonly used: number;
}

/**
 * A recording of dispatches and barriers. Arguments are checked before anything is recorded: a refused dispatch leaves
 * the encoder as it was. `commit()` runs the recording once, `finish()` keeps it for replay.
 */
export interface CommandEncoder {
  readonly device: Device;
  /** Where tensors come from. An encoder that optimizes takes memory when the recording ends, and shows no arena. */
  readonly arena: Arena | undefined;

  /**
   * An uninitialized tensor from the encoder's arena, or a zeroed one of its own when there is none. Of an encoder that
   * optimizes it is scratch: it has no memory before the recording ends, and is dead then unless it is kept.
   * @throws MlxtsError `BufferAllocation` for more bytes than a buffer of the device can have
   */
  empty<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D>;
  /**
   * Records one dispatch of a kernel. Its arguments are read once: what is checked is what runs.
   * @throws TypeError or RangeError naming the buffer, parameter or size that is wrong; nothing is recorded then
   */
  dispatch<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
    kernel: Kernel<B, P, S>,
    args: DispatchArguments<B, P, S>,
  ): void;
  /**
   * Records the dispatches of a block, each of `tensors` in the place of the one that it was made with: of equal dtype and
   * byte length, and as far from a multiple of 16 bytes. What is written must not overlap the others. Scratch comes from
   * where outputs of ops come from. Only for encoders that place barriers themselves.
   */
  append(block: Block, tensors: readonly Tensor[]): void;
  /** Orders everything recorded so far before everything recorded later. */
  barrier(): void;
  /**
   * Runs the recording after everything committed before it. Await the submission, or not. Buffers that were disposed
   * after they had been recorded are still used.
   */
  commit(options?: CommitOptions & EndOptions): Submission;
  /** Ends the recording and keeps it: each `replay()` is one call. */
  finish(options?: EndOptions): Recording;

  /**
   * Ends the recording, optimized as the encoder is told, as a block that other encoders append with other tensors in the
   * places of these: of each view within one of them that view within the other. Tensors that no dispatch binds may be
   * named. Nothing runs, and the encoder is disposed.
   * @throws RangeError when a tensor is listed twice, or one that is written overlaps others, or a dispatch binds a view that
   *   lies in one in part
   */
  block(tensors: readonly Tensor[]): Block;
  /** Abandons the recording and releases its buffers; after `commit` or `finish` it does nothing. */
  dispose(): void;
  [Symbol.dispose](): void;
  /** What has been recorded so far. */
  toJSON(): { type: "CommandEncoder"; device: string; state: string; barriers: string; dispatches: number };
}

/** An op, whatever its tensors and options. */
export type BakedOp = ((encoder: never, inputs: never, options: never) => unknown) & {
  readonly op: { readonly name: string; readonly outputs: Readonly<Record<string, { inPlace?: readonly string[] }>> };
};

/** A call of an op that was checked when it was baked. */
export interface OpRecord {
  readonly device: Device;
  /** The op's name. */
  readonly op: string;
  /** What `encode` takes: inputs, those of records one by one, and all outputs. */
  readonly names: readonly string[];
  /**
   * Records the same dispatches as the op's own call. Only what can still be wrong is checked: that the tensors are there,
   * of the dtypes and lengths that were baked, on the device, alive, aligned, and apart where they must be.
   * @throws TypeError, RangeError or MlxtsError `Disposed`
   */
  encode(encoder: CommandEncoder, tensors: Readonly<Record<string, Tensor>>): void;
  /** What was baked. */
  toJSON(): { type: "OpRecord"; op: string; names: readonly string[]; dispatches: number };
}

export interface EncoderOptions {
  /** `auto` inserts the barriers that declared accesses need; `manual` inserts none. Default `auto`. */
  barriers?: "auto" | "manual";
  /** Where ops take outputs and scratch from when none are given. Default: fresh buffers. */
  arena?: Arena;
  /** What is done to the recording when it ends; `true` is `{}`. Default `false`: it runs as it was recorded. */
  optimize?: boolean | OptimizeOptions;
}

/**
 * What an encoder does to its recording when that ends. The contents of all tensors but scratch stay those of one dispatch
 * after another, to the bit. Scratch are the tensors that the encoder made and that are not kept. With manual barriers
 * only scratch is shared.
 */
export interface OptimizeOptions {
  /** Rules by which calls of ops become one. Default: none. */
  fuse?: readonly Fusion[];
  /** Move dispatches before others that they do not depend on, where that saves barriers. Default `true`. */
  reorder?: boolean;
  /** Let scratch that is never needed at the same time share memory. Default `true`. */
  reuseScratch?: boolean;
}

/** What happens to the tensors that an encoder has made when its recording ends. */
export interface EndOptions {
  /**
   * Those whose contents the program wants to see: they get memory of their own, which lives until they are disposed, or
   * until the encoder's arena is reset; those of `commit` also end when the arena is rewound to a place before the call. It
   * means nothing for an encoder that does not optimize, and for other tensors.
   */
  keep?: readonly Tensor[];
}

/** One dispatch of a kernel: which variant, on which tensors, with which parameters and sizes. */
export interface DispatchArguments<B extends Record<string, Access>, P extends Record<string, Scalar>, S> {
  variant: string;
  buffers: { [K in keyof B]: B[K] extends `${string}?` ? Tensor | undefined : Tensor };
  params: { [K in keyof P]: number };
  sizes: S;
  /** The op that dispatches, for errors and traces. Default: the kernel's name. */
  op?: string;
  /** What the op calls buffers that the kernel names otherwise, for the texts of faults. */
  names?: { readonly [K in keyof B]?: string };
}

/** Recorded dispatches without some of their tensors: it retains no memory of these, nor of scratch. */
export interface Block {
  readonly device: Device;
  /** Number of tensors that `append` takes. */
  readonly tensors: number;
  /** Number of dispatches. */
  readonly dispatches: number;
  /** What has been recorded. */
  toJSON(): { type: "Block"; device: string; tensors: number; dispatches: number };
}

/** A finished recording. It retains its buffers: it can be replayed as long as none of them is disposed. */
export interface Recording {
  readonly device: Device;
  /** Number of dispatches. */
  readonly dispatches: number;
  /** Number of barriers. */
  readonly barriers: number;
  readonly disposed: boolean;

  /** Runs the recorded dispatches again, in one call. */
  replay(options?: CommitOptions): Submission;
  /**
   * The same recording with tensors replaced: pairs of [recorded, replacement] with equal dtype and byte length.
   * Overlaps are checked and barriers are placed anew.
   * @throws RangeError when no dispatch binds a tensor that is to be replaced; in a recording that was optimized also when
   * tensors would overlap that did not before, or when optimizing has left out a dispatch that binds the tensor
   */
  rebind(pairs: Iterable<readonly [Tensor, Tensor]>): Recording;
  /** Whether a dispatch binds the tensor, as the same view of its buffer: `rebind` replaces no others. */
  binds(tensor: Tensor): boolean;

  dispose(): void;
  [Symbol.dispose](): void;
  /** What has been recorded. */
  toJSON(): { type: "Recording"; device: string; dispatches: number; barriers: number; disposed: boolean };
}

/**
 * Work handed to a device. Await it (`await encoder.commit()`), block on it with `waitSync()`, or do neither: a failure
 * that nobody awaits becomes a process warning.
 */
export interface Submission extends PromiseLike<SubmissionResult> {
  readonly state: "committed" | "completed" | "failed";
  then<A = SubmissionResult, B = never>(
    onDone?: ((result: SubmissionResult) => A | PromiseLike<A>) | null,
    onFailed?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;
  /** Blocks until the work has ended; for scripts. A signal that was aborted before throws its reason. */
  waitSync(): SubmissionResult;
  /** How far it is, and what it took. */
  toJSON(): { type: "Submission"; state: string; ms?: number };
}

/** What a submission took. */
export interface SubmissionResult {
  /** Time on the device. */
  ms: number;
  /** With `profile`: one entry for each dispatch, in recorded order. */
  dispatches?: { label: string; us: number }[];
}

/** A package's kernels on a device. */
export interface Library {
  readonly definition: LibraryDefinition;
  /** Whether the library has that variant of a kernel. The answer is remembered: ops ask in every call. */
  has(kernel: string, variant: string): boolean;
  /** Which library it is. */
  toJSON(): { type: "Library"; name: string; url: string };
}
