import { types } from "node:util";
import { markAsUntransferable } from "node:worker_threads";
import { Arena, type ArenaOptions } from "./arena.ts";
import { Buffer, bytesOfView } from "./buffer.ts";
import { checkDeviceOptions, type DeviceOptions } from "./device_options.ts";
import { type ArrayOf, checkDtype, type Dtype, rawNumbers } from "./dtype.ts";
import { CommandEncoder, type EncoderOptions } from "./encoder.ts";
import { environment } from "./env.ts";
import { disposedError, MlxtsError, wrongKind, wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { checkLibrary, Library, type LibraryDefinition } from "./library.ts";
import {
  type DeviceLimits,
  type NativeDevice,
  type NativeInfo,
  type NativeMemory,
  type NativeWrap,
  native,
  nativeFailure,
  simulatorMissing,
} from "./native.ts";
import { checkOptionNames } from "./options.ts";
import { bytesOf, copyShape, countOf } from "./shape.ts";
import { SubmissionQueue } from "./submission.ts";
import { Tensor } from "./tensor.ts";

export type DeviceKind = "cpu" | "metal";

/** Kinds to try when none is asked for. */
const KINDS: readonly DeviceKind[] = process.platform === "darwin" ? ["metal", "cpu"] : ["cpu"];

/** Why there can be no device of a kind here. */
function unavailable(kind: DeviceKind): string | undefined {
  if (KINDS.includes(kind)) return undefined;
  if (kind === "metal" && environment().metalSimulator) return simulatorMissing();
  return `this build has no ${kind} device`;
}

export interface WrapOptions {
  /** Refuse to write to it. Default `false`. */
  readOnly?: boolean | undefined;
}

/** Monotonic counts of what a device has done; live counts of what it holds. */
export interface DeviceCounters {
  dispatches: number;
  manualBarriers: number;
  automaticBarriers: number;
  submissions: number;
  waits: number;
  pipelines: number;
  /** Tensors of a checkpoint that could not be bound where they lie. */
  copiedTensors: number;
  liveBuffers: number;
  liveBytes: number;
  peakBytes: number;
}

type Tally = Omit<DeviceCounters, "liveBuffers" | "liveBytes" | "peakBytes">;

const zeroTally = (): Tally => ({
  dispatches: 0,
  manualBarriers: 0,
  automaticBarriers: 0,
  submissions: 0,
  waits: 0,
  pipelines: 0,
  copiedTensors: 0,
});

function deviceNotFound(tried: { kind: string; reason: string }[], cause?: unknown): MlxtsError {
  const list = tried.map(({ kind, reason }) => `${kind} (${reason})`).join(", ");
  return new MlxtsError("DeviceNotFound", `no device found: ${list}`, { tried }, cause);
}

/** Instruction-set levels of this processor that kernels are built for, best first. */
export function cpuLevels(): string[] {
  return native().cpuLevels();
}

/**
 * Whether a mark keeps JavaScript from taking an ArrayBuffer's bytes away. On Node.js 21 to 23 and early versions of 24 it
 * does not: `transfer(length)` moves them, also while a device works on them.
 */
const canPin = (() => {
  const probe = new ArrayBuffer(1) as ArrayBuffer & { transfer?(): ArrayBuffer };
  markAsUntransferable(probe);
  try {
    probe.transfer?.();
  } catch {
    // Refused, as it should be.
  }
  return probe.byteLength === 1;
})();

const resizable = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "resizable")?.get;

/** What the ArrayBuffer itself says, whatever its properties are. */
const isResizable = (buffer: ArrayBuffer): boolean => resizable?.call(buffer) === true;

/** A callback that does not keep the queue alive: a device that is lost without `dispose` can then be collected. */
function weakOnEnded(): { call(): void; target(queue: SubmissionQueue): void } {
  let weak: WeakRef<SubmissionQueue> | undefined;
  return {
    call: () => weak?.deref()?.onEnded(),
    target: (queue) => {
      weak = new WeakRef(queue);
    },
  };
}

/** Lets a device say that it takes less than it does, so that tests reach what large devices never refuse. @internal */
export let changeLimits: (device: Device, limits: Partial<DeviceLimits>) => void;

/** Where work runs. Several may be open at once; everything made from a device belongs to it. */
export class Device {
  readonly kind: DeviceKind;
  /** Whether it is a GPU: launch rules cut work up for many small threads. */
  readonly gpu: boolean;
  /** The hardware's name. */
  readonly name: string;
  /** The instruction-set level whose kernels run. */
  readonly level: string;
  readonly unifiedMemory: boolean;
  /** @internal */
  readonly kernelsFromSource: boolean;
  #limits: Readonly<DeviceLimits>;
  readonly validate: boolean;
  readonly poison: boolean;
  /** @internal */
  readonly debug: number;
  /** @internal */
  readonly submissions: SubmissionQueue;
  /** @internal */
  readonly tally: Tally = zeroTally();
  /** @internal Buffers whose memory a host array shows. */
  readonly borrowed = new Set<Buffer>();
  readonly #handle: NativeDevice;
  readonly #libraries = new Map<LibraryDefinition, Library>();
  #closed = false;

  static {
    identify("Device", Device, (value) => #handle in value);
    printAsJson(Device);
    changeLimits = (device, limits) => {
      device.#limits = Object.freeze({ ...device.#limits, ...limits });
    };
  }

  /**
   * Opens a device: the kind asked for, else `MLXTS_DEVICE`, else the best there is.
   * @throws MlxtsError `DeviceNotFound` with `details.tried`
   */
  static open(kind?: DeviceKind, options: DeviceOptions = {}): Device {
    if (kind !== undefined && typeof kind !== "string") throw wrongKind("Device.open", "kind", "be cpu or metal", kind);
    const checked = checkDeviceOptions(options);
    const wanted = kind ?? environment().device;
    const tried: { kind: string; reason: string }[] = [];
    let cause: unknown;
    for (const candidate of wanted === undefined ? KINDS : [wanted]) {
      const reason = unavailable(candidate);
      if (reason !== undefined) tried.push({ kind: candidate, reason });
      else
        try {
          return new Device(candidate, checked);
        } catch (error) {
          if (nativeFailure(error)?.code !== "DeviceNotFound") throw error;
          tried.push({ kind: candidate, reason: (error as Error).message });
          cause = error;
        }
    }
    throw deviceNotFound(tried, cause);
  }

  private constructor(kind: DeviceKind, options: DeviceOptions) {
    const env = environment();
    const threads = options.threads ?? env.threads ?? 0;
    const level = options.level ?? env.cpuLevel;
    const onEnded = weakOnEnded();
    try {
      this.#handle = native().openDevice(
        {
          kind,
          threads,
          level: level ?? "",
          order: options.order ?? "forward",
          capture: env.capture ?? "",
        },
        onEnded.call,
      );
    } catch (error) {
      const failure = nativeFailure(error);
      if (failure?.code === "Io")
        throw new MlxtsError("Io", failure.message, { path: failure.detail, operation: "capture" }, error);
      if (failure?.code !== "InvalidArgument") throw error;
      throw wrongValue("Device.open", "level", `be one of ${cpuLevels().join(", ")} on this processor`, level);
    }
    this.submissions = new SubmissionQueue(this, this.#handle);
    onEnded.target(this.submissions);
    const info: NativeInfo = native().deviceInfo(this.#handle);
    this.kind = kind;
    this.gpu = kind !== "cpu";
    this.name = info.name;
    this.level = info.level;
    this.unifiedMemory = info.unifiedMemory;
    this.kernelsFromSource = info.kernelsFromSource;
    this.#limits = Object.freeze(info.limits);
    this.debug = env.debug;
    this.validate = options.validate ?? env.validate;
    this.poison = options.poison ?? env.poison;
    if (this.debug >= 1)
      process.stderr.write(`mlxts device ${kind}: ${this.name}, level ${this.level}, ${this.limits.threads} threads\n`);
    Object.freeze(this);
  }

  /** What the device is. */
  toJSON(): { type: "Device"; kind: DeviceKind; name: string; level: string; threads: number; disposed: boolean } {
    const { kind, name, level, limits, disposed } = this;
    return { type: "Device", kind, name, level, threads: limits.threads, disposed };
  }

  get limits(): Readonly<DeviceLimits> {
    return this.#limits;
  }

  get disposed(): boolean {
    return this.#closed;
  }

  private live(): NativeDevice {
    if (this.#closed) throw disposedError("device");
    return this.#handle;
  }

  /** A zero-filled buffer. */
  buffer(bytes: number): Buffer {
    if (!Number.isSafeInteger(bytes) || bytes < 1)
      throw wrongValue("device.buffer", "bytes", "be an integer ≥ 1", bytes);
    return new Buffer(this, this.allocate(bytes), bytes);
  }

  private allocate(bytes: number): NativeMemory {
    const device = this.live();
    if (bytes > this.limits.maxBufferBytes) throw this.refused(bytes);
    try {
      return native().allocate(device, bytes);
    } catch (error) {
      throw nativeFailure(error)?.code === "BufferAllocation" ? this.refused(bytes, error) : error;
    }
  }

  private refused(bytes: number, cause?: unknown): MlxtsError {
    return new MlxtsError("BufferAllocation", `cannot allocate ${bytes} bytes on ${this.kind}`, { bytes }, cause);
  }

  /** A buffer with a copy of the bytes. */
  bufferFrom(data: ArrayBufferView): Buffer {
    if (!ArrayBuffer.isView(data)) throw wrongKind("device.bufferFrom", "data", "be a typed array or DataView", data);
    const bytes = bytesOfView("device.bufferFrom", "data", data);
    const buffer = this.buffer(bytes.length);
    buffer.write(bytes);
    return buffer;
  }

  /**
   * A buffer over memory that stays where it is. The memory lives until the buffer is disposed and idle, whatever becomes of
   * the array: also a SharedArrayBuffer, or what `tensor.typedArray()` shows of another buffer, which may be disposed.
   * A plain ArrayBuffer can no longer be transferred; where Node.js cannot prevent that (21 to 23, early 24) it is
   * refused, and so are resizable ones everywhere. When `WebAssembly.Memory.grow` takes the bytes away, the buffer counts
   * as disposed.
   */
  wrap(memory: ArrayBufferView, options: WrapOptions = {}): Buffer {
    const op = "device.wrap";
    checkOptionNames<WrapOptions>(op, options, { readOnly: true });
    const { readOnly = false } = options;
    if (typeof readOnly !== "boolean") throw wrongKind(op, "readOnly", "be a boolean", readOnly);
    if (!ArrayBuffer.isView(memory)) throw wrongKind(op, "memory", "be a typed array or DataView", memory);
    const source = memory.buffer;
    if (!types.isAnyArrayBuffer(source))
      throw wrongKind(op, "memory", "lie in an ArrayBuffer or SharedArrayBuffer", source);
    if (types.isArrayBuffer(source) && isResizable(source))
      throw wrongValue(op, "memory", "have a fixed length", "a view of a resizable ArrayBuffer");
    const view = bytesOfView(op, "memory", memory, source);
    const bytes = view.length;
    if (bytes === 0) throw wrongValue(op, "memory", "have at least one byte", "0 bytes");
    const device = this.live();
    const cannotHold = () =>
      wrongValue(
        op,
        "memory",
        "lie in a SharedArrayBuffer or in a buffer's own array on this version of Node.js",
        "an ArrayBuffer that can be transferred away",
        "copy it with device.bufferFrom",
      );
    let wrap: NativeWrap;
    try {
      wrap = native().wrapMemory(device, view, readOnly);
    } catch (error) {
      const failure = nativeFailure(error);
      if (failure?.code === "BufferAllocation") throw this.refused(bytes, error);
      if (failure?.code !== "InvalidArgument") throw error;
      if (failure.detail === "ArrayBuffer") throw cannotHold();
      const rule = `start on and span whole pages of ${this.limits.wrapAlignment} bytes on this device`;
      throw wrongValue(op, "memory", rule, failure.detail, "copy it with device.bufferFrom");
    }
    if (wrap.detachable && !canPin) {
      native().releaseMemory(wrap.memory);
      throw cannotHold();
    }
    if (wrap.detachable) markAsUntransferable(source);
    const watched = types.isArrayBuffer(source) && !wrap.lent;
    return new Buffer(this, wrap.memory, bytes, { readOnly, wrapped: true, source: watched ? source : undefined });
  }

  /** A read-only buffer over the first `bytes` of a file, mapped: nothing is read before it is used. The file must not shrink meanwhile. */
  mapFile(path: string, bytes: number): Buffer {
    if (typeof path !== "string") throw wrongKind("device.mapFile", "path", "be a string", path);
    if (!Number.isSafeInteger(bytes) || bytes < 1)
      throw wrongValue("device.mapFile", "bytes", "be an integer ≥ 1", bytes);
    try {
      return new Buffer(this, native().mapFile(this.live(), path, bytes), bytes, { readOnly: true });
    } catch (error) {
      const failure = nativeFailure(error);
      if (failure?.code === "BufferAllocation") throw this.refused(bytes, error);
      if (failure?.code !== "Io") throw error;
      throw new MlxtsError("Io", `cannot map ${path}: ${failure.message}`, { path, operation: "map" }, error);
    }
  }

  /** A tensor with a buffer of its own: zeros, or `data` (a raw typed array of the dtype as it is, other numbers rounded). */
  tensor<D extends Dtype>(dtype: D, shape: readonly number[], data?: ArrayOf<D> | ArrayLike<number>): Tensor<D> {
    const op = "device.tensor";
    checkDtype(op, dtype);
    const dims = copyShape(op, shape);
    const size = countOf(op, dims);
    // Before anything is allocated.
    const raw = data === undefined ? undefined : rawNumbers(op, dtype, data, size);
    const buffer = this.buffer(bytesOf(op, dtype, dims, size));
    if (raw) buffer.write(raw);
    return new Tensor(buffer, dtype, dims, { owned: true });
  }

  /** Scratch for outputs and intermediate tensors. With `grow` it takes more memory instead of refusing. */
  arena(bytes: number, options: ArenaOptions = {}): Arena {
    return new Arena(this, bytes, options);
  }

  encoder(options: EncoderOptions = {}): CommandEncoder {
    this.live();
    return new CommandEncoder(this, options);
  }

  /** A package's kernels on this device; opened once. */
  library(definition: LibraryDefinition): Library {
    checkLibrary("device.library", definition);
    let library = this.#libraries.get(definition);
    if (!library) {
      library = new Library(definition, this.live(), this, () => this.tally.pipelines++);
      this.#libraries.set(definition, library);
    }
    return library;
  }

  /** A snapshot of the counters. */
  get counters(): DeviceCounters {
    const [liveBuffers, liveBytes, peakBytes] = native().memoryCounters(this.live());
    return { ...this.tally, liveBuffers, liveBytes, peakBytes };
  }

  resetCounters(): void {
    Object.assign(this.tally, zeroTally());
    native().resetPeakBytes(this.live());
  }

  /** Waits for work in flight, then releases everything; later use of any child is an error. */
  dispose(): void {
    if (this.#closed) return;
    native().closeDevice(this.#handle);
    this.submissions.onEnded();
    for (const buffer of this.borrowed) buffer.dispose();
    this.#closed = true;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
