import { types } from "node:util";
import { markAsUntransferable } from "node:worker_threads";
import type * as api from "./api.ts";
import { Arena } from "./arena.ts";
import { arrayToWrap, bytesOfView, canPin } from "./array_buffers.ts";
import { bake } from "./baked.ts";
import { Buffer } from "./buffer.ts";
import { type DeviceCounters, zeroTally } from "./counters.ts";
import type { DeviceCore } from "./device_core.ts";
import { checkDeviceOptions, DEVICE_KINDS, type DeviceKind, type DeviceOptions } from "./device_options.ts";
import { type ArrayOf, checkDtype, type Dtype, rawNumbers } from "./dtype.ts";
import { CommandEncoder } from "./encoder.ts";
import { environment } from "./env.ts";
import { disposedError, MlxtsError, wrongKind, wrongValue } from "./errors.ts";
import { loadFile, readFileOptions } from "./file_load.ts";
import { identify, printAsJson } from "./identity.ts";
import { Library } from "./library.ts";
import { checkLibrary, type LibraryDefinition } from "./library_definition.ts";
import {
  type DeviceLimits,
  deviceFailure,
  type KernelFormat,
  type NativeDevice,
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

/** Kinds to try when none is asked for. */
const KINDS: readonly DeviceKind[] = process.platform === "darwin" ? ["metal", "cpu"] : ["cuda", "cpu"];

/** Why there can be no device of a kind here. */
function unavailable(kind: DeviceKind): string | undefined {
  if (KINDS.includes(kind)) return undefined;
  if (kind === "metal" && environment().metalSimulator) return simulatorMissing();
  return `this build has no ${kind} device`;
}

function deviceNotFound(tried: { kind: string; reason: string }[], cause?: unknown): MlxtsError {
  const list = tried.map(({ kind, reason }) => `${kind} (${reason})`).join(", ");
  return new MlxtsError("DeviceNotFound", `no device found: ${list}`, { tried }, cause);
}

/** Instruction-set levels of this processor that kernels are built for, best first. */
export function cpuLevels(): string[] {
  return native().cpuLevels();
}

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

/** Opens the native device; options go before the environment. */
function openNative(kind: DeviceKind, options: DeviceOptions, onEnded: () => void): NativeDevice {
  const env = environment();
  const { threads = env.threads ?? 0, level = env.cpuLevel ?? "", order = "forward" } = options;
  try {
    return native().openDevice(
      { kind, threads, level, order, capture: env.capture ?? "", driver: env.cudaDriver ?? "" },
      onEnded,
    );
  } catch (error) {
    const failure = nativeFailure(error);
    if (failure?.code === "Io")
      throw new MlxtsError("Io", failure.message, { path: failure.detail, operation: "capture" }, error);
    if (failure?.code !== "InvalidArgument") throw error;
    throw wrongValue("Device.open", "level", `be one of ${cpuLevels().join(", ")} on this processor`, level);
  }
}

/** Lowers limits of a device, so that tests can exceed them. */
export let changeLimits: (device: api.Device, limits: Partial<DeviceLimits>) => void;

/** The class behind `Device`. */
export class Device implements DeviceCore {
  readonly kind: DeviceKind;
  readonly launchKind: DeviceKind;
  readonly gpu: boolean;
  readonly name: string;
  readonly level: string;
  readonly unifiedMemory: boolean;
  readonly kernelFormat: KernelFormat;
  readonly validate: boolean;
  readonly poison: boolean;
  readonly debug: number;
  readonly submissions: SubmissionQueue;
  readonly tally = zeroTally();
  readonly borrowed = new Set<{ dispose(): void }>();
  #limits: Readonly<DeviceLimits>;
  readonly #handle: NativeDevice;
  readonly #libraries = new Map<LibraryDefinition, Library>();
  #closed = false;

  static {
    identify("Device", Device, (value) => #handle in value);
    printAsJson(Device);
    changeLimits = (device, limits) => {
      (device as Device).#limits = Object.freeze({ ...device.limits, ...limits });
    };
  }

  static open(kind?: DeviceKind, options: DeviceOptions = {}): Device {
    if (kind !== undefined && typeof kind !== "string")
      throw wrongKind("Device.open", "kind", `be one of ${DEVICE_KINDS.join(", ")}`, kind);
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

  constructor(kind: DeviceKind, options: DeviceOptions) {
    const env = environment();
    const onEnded = weakOnEnded();
    this.#handle = openNative(kind, options, onEnded.call);
    this.debug = env.debug;
    this.submissions = new SubmissionQueue(this.#handle, this.tally, this.debug >= 2);
    onEnded.target(this.submissions);
    const info = native().deviceInfo(this.#handle);
    this.kind = kind;
    this.launchKind = kind === "metal" && env.simulatedCuda ? "cuda" : kind;
    this.gpu = kind !== "cpu";
    this.name = info.name;
    this.level = info.level;
    this.unifiedMemory = info.unifiedMemory;
    this.kernelFormat = info.kernelFormat;
    Object.freeze(info.limits.maxThreadgroupsPerAxis);
    this.#limits = Object.freeze(info.limits);
    this.validate = options.validate ?? env.validate;
    this.poison = options.poison ?? env.poison;
    if (this.debug >= 1)
      process.stderr.write(`mlxts device ${kind}: ${this.name}, level ${this.level}, ${this.limits.threads} threads\n`);
    Object.freeze(this);
  }

  toJSON(): ReturnType<api.Device["toJSON"]> {
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

  buffer(byteLength: number): Buffer {
    return new Buffer(this, this.allocate(byteLength), byteLength);
  }

  allocate(byteLength: number): NativeMemory {
    if (!Number.isSafeInteger(byteLength) || byteLength < 1)
      throw wrongValue("device.buffer", "byteLength", "be an integer ≥ 1", byteLength);
    const device = this.live();
    if (byteLength > this.limits.maxBufferBytes) throw this.refused(byteLength);
    try {
      return native().allocate(device, byteLength);
    } catch (error) {
      if (nativeFailure(error)?.code === "BufferAllocation") throw this.refused(byteLength, error);
      throw deviceFailure("device.buffer", error);
    }
  }

  private refused(bytes: number, cause?: unknown): MlxtsError {
    const free = this.#closed ? undefined : native().freeBytes(this.#handle);
    const left = free === undefined ? "" : `: ${free} bytes are free`;
    return new MlxtsError(
      "BufferAllocation",
      `cannot allocate ${bytes} bytes on ${this.kind}${left}`,
      { bytes },
      cause,
    );
  }

  bufferFrom(data: ArrayBufferView): Buffer {
    if (!ArrayBuffer.isView(data)) throw wrongKind("device.bufferFrom", "data", "be a typed array or DataView", data);
    const bytes = bytesOfView("device.bufferFrom", "data", data);
    const buffer = this.buffer(bytes.length);
    buffer.write(bytes);
    return buffer;
  }

  wrap(memory: ArrayBufferView, options: api.WrapOptions = {}): Buffer {
    const op = "device.wrap";
    checkOptionNames<api.WrapOptions>(op, options, { readOnly: true });
    const { readOnly = false } = options;
    if (typeof readOnly !== "boolean") throw wrongKind(op, "readOnly", "be a boolean", readOnly);
    const { view, source } = arrayToWrap(op, memory);
    if (!this.unifiedMemory)
      throw wrongValue(
        op,
        "device",
        "share its memory with the host (device.unifiedMemory)",
        this.kind,
        "copy the array with device.bufferFrom",
      );
    const bytes = view.length;
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

  async mapFile(path: string, byteLength: number, options: api.FileOptions = {}): Promise<Buffer> {
    const op = "device.mapFile";
    if (typeof path !== "string") throw wrongKind(op, "path", "be a string", path);
    if (!Number.isSafeInteger(byteLength) || byteLength < 1)
      throw wrongValue(op, "byteLength", "be an integer ≥ 1", byteLength);
    const checked = readFileOptions(op, options);
    const device = this.live();
    let buffer: Buffer;
    try {
      const memory =
        this.unifiedMemory && checked.map
          ? native().mapFile(device, path, byteLength)
          : await loadFile(device, path, byteLength, checked);
      buffer = new Buffer(this, memory, byteLength, { readOnly: true });
    } catch (error) {
      const failure = nativeFailure(error);
      if (failure?.code === "Disposed") throw disposedError("device");
      if (failure?.code === "BufferAllocation") throw this.refused(byteLength, error);
      if (failure?.code !== "Io") throw deviceFailure(op, error);
      throw new MlxtsError("Io", `cannot map ${path}: ${failure.message}`, { path, operation: "map" }, error);
    }
    try {
      checked.onProgress?.(byteLength, byteLength);
      checked.signal?.throwIfAborted();
      this.live();
    } catch (error) {
      buffer.dispose();
      throw error;
    }
    return buffer;
  }

  tensor<D extends Dtype>(dtype: D, shape: readonly number[], data?: ArrayOf<D> | ArrayLike<number>): Tensor<D> {
    const op = "device.tensor";
    checkDtype(op, dtype);
    const dims = copyShape(op, shape);
    const size = countOf(op, dims);
    // Numbers are checked before anything is allocated.
    const raw = data === undefined ? undefined : rawNumbers(op, dtype, data, size);
    const buffer = this.buffer(bytesOf(op, dtype, dims, size));
    if (raw) buffer.write(raw);
    return new Tensor(buffer, dtype, dims, { owned: true });
  }

  arena(byteLength: number, options: api.ArenaOptions = {}): Arena {
    return new Arena(this, byteLength, options);
  }

  encoder(options: api.EncoderOptions = {}): CommandEncoder {
    this.live();
    return new CommandEncoder(this, options);
  }

  bake(op: api.BakedOp, inputs: object, options: object = {}): api.OpRecord {
    this.live();
    return bake(this, op, inputs, options);
  }

  library(definition: LibraryDefinition): Library {
    checkLibrary("device.library", definition);
    let library = this.#libraries.get(definition);
    if (!library) {
      library = new Library(definition, this.live(), this, () => this.tally.pipelines++);
      this.#libraries.set(definition, library);
    }
    return library;
  }

  get counters(): DeviceCounters {
    const [liveBuffers, liveBytes, peakBytes] = native().memoryCounters(this.live());
    return { ...this.tally, liveBuffers, liveBytes, peakBytes };
  }

  resetCounters(): void {
    Object.assign(this.tally, zeroTally());
    native().resetPeakBytes(this.live());
  }

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
