import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Buffer, Device, FileOptions, Tensor } from "./api.ts";
import type { DeviceCore } from "./device_core.ts";
import { checkDtype, DTYPES, type Dtype, type RawArray } from "./dtype.ts";
import { disposedError, ioError, wrongKind } from "./errors.ts";
import { readFileOptions } from "./file_load.ts";
import { readPlainFile } from "./files.ts";
import { identify, isOurs, printAsJson } from "./identity.ts";
import {
  type FileStamp,
  parseJsonObject,
  type StoredDtype,
  type StoredTensor,
  safetensorsError,
  stringMap,
  withSafetensors,
} from "./safetensors.ts";
import { Tensor as TensorClass } from "./tensor.ts";

const INDEX = "model.safetensors.index.json";
const INDEX_DEPTH = 32;
/** An index takes about 100 bytes for each tensor. */
const MAX_INDEX_BYTES = 1 << 28;
const COPY_BYTES = 1 << 24;

/** What a checkpoint says of a tensor. */
export interface CheckpointTensor {
  /** The dtype that carries the elements; `undefined` for F64, U64, C64, F6 and F4, which must be converted. */
  readonly dtype: Dtype | undefined;
  /** The element type in the file. */
  readonly storedDtype: StoredDtype;
  readonly shape: readonly number[];
  readonly file: string;
}

/** What a file says it holds. */
interface Shard {
  readonly path: string;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly metadata: Record<string, string>;
  readonly stamp: FileStamp;
}

interface Entry extends StoredTensor {
  readonly shard: Shard;
}

/** The files of a checkpoint and, where an index says so, which tensor lies in which. */
interface Files {
  readonly files: readonly string[];
  readonly index?: { readonly path: string; readonly fileOf: ReadonlyMap<string, string> };
}

const exists = (path: string) => statSync(path, { throwIfNoEntry: false }) !== undefined;

/** What `read` gives; an error of the file system says that `path` could not be opened. */
function opening<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw ioError(path, "open", error);
  }
}

function checkpointFiles(path: string): Files {
  if (!statSync(path).isDirectory()) return { files: [path] };
  const single = join(path, "model.safetensors");
  if (exists(single)) return { files: [single] };
  const indexPath = join(path, INDEX);
  if (exists(indexPath)) return readIndex(path, indexPath);
  const files = readdirSync(path)
    .filter((name) => /^model.*\.safetensors$/.test(name))
    .sort()
    .map((name) => join(path, name));
  if (files.length > 0) return { files };
  throw safetensorsError(path, `has neither model.safetensors nor ${INDEX} nor model*.safetensors`);
}

function readIndex(folder: string, path: string): Files {
  const json = parseJsonObject(path, readPlainFile(path, MAX_INDEX_BYTES), "index", INDEX_DEPTH);
  const names = stringMap(path, json.weight_map, "weight_map");
  const fileOf = new Map<string, string>();
  for (const [name, shard] of Object.entries(names)) {
    // A plain file name: an index must not reach outside its folder.
    if (shard === "" || shard === "." || shard === ".." || /[/\\\0]/.test(shard))
      throw safetensorsError(path, `its shard must be a file name, got ${JSON.stringify(shard)}`, name);
    fileOf.set(name, join(folder, shard));
  }
  return { files: [...new Set(fileOf.values())], index: { path, fileOf } };
}

function readShard(path: string, index: Files["index"]): Shard {
  if (index && !opening(path, () => exists(path)))
    throw safetensorsError(
      index.path,
      `names the shard ${path}, which does not exist: download it; where the files there are complete without it, the index is an old one: delete it`,
    );
  return withSafetensors(path, ({ tensors, metadata }, stamp) => ({ path, tensors, metadata, stamp }));
}

/**
 * The tensors of all files; one that is in two files is refused. With an index those that it names, each from the file that
 * it names for it.
 */
function entriesOf(shards: readonly Shard[], index: Files["index"]): Map<string, Entry> {
  const all = new Map<string, Entry>();
  for (const shard of shards)
    for (const [name, stored] of shard.tensors) {
      if (index && index.fileOf.get(name) !== shard.path) continue;
      const other = all.get(name);
      if (other) throw safetensorsError(shard.path, `is also in ${other.shard.path}`, name);
      all.set(name, { ...stored, shard });
    }
  if (!index) return all;
  const entries = new Map<string, Entry>();
  for (const [name, file] of index.fileOf) {
    const entry = all.get(name);
    if (!entry) throw safetensorsError(index.path, `is not in ${file}, where the index says it is`, name);
    entries.set(name, entry);
  }
  return entries;
}

/** Gives the device the bytes of all files, one after the other. */
async function loadShards(
  device: Device,
  shards: readonly Shard[],
  { map, onProgress, signal }: FileOptions,
): Promise<Map<Shard, Buffer>> {
  const copied = !device.unifiedMemory || !map;
  const total = shards.reduce((sum, { stamp }) => sum + stamp.bytes, 0);
  const buffers = new Map<Shard, Buffer>();
  let before = 0;
  try {
    for (const shard of shards) {
      const { path, stamp } = shard;
      const done = before;
      const report = copied && onProgress ? (loaded: number) => onProgress(done + loaded, total) : undefined;
      buffers.set(shard, await device.mapFile(path, stamp.bytes, { map, onProgress: report, signal }));
      before += stamp.bytes;
      const now = statSync(path, { throwIfNoEntry: false });
      if (now?.size !== stamp.bytes || now.mtimeMs !== stamp.modifiedMs)
        throw safetensorsError(path, "changed while it was being opened");
    }
    if (!copied) {
      onProgress?.(total, total);
      signal?.throwIfAborted();
      if (device.disposed) throw disposedError("device");
    }
  } catch (error) {
    for (const buffer of buffers.values()) buffer.dispose();
    throw error;
  }
  return buffers;
}

/** What a checkpoint is made of. */
interface Opened {
  device: Device;
  path: string;
  entries: ReadonlyMap<string, Entry>;
  buffers: ReadonlyMap<Shard, Buffer>;
}

/**
 * The tensors of a checkpoint, bound where they lie in the mapped files, or in the device's copies of them. The files may be
 * deleted meanwhile but must not be changed in place. Tensors die with the checkpoint.
 */
export class Checkpoint {
  readonly device: Device;
  /** `__metadata__` of all files; of equal names the first file's. */
  readonly metadata: Readonly<Record<string, string>>;
  private readonly buffers: ReadonlyMap<Shard, Buffer>;
  private readonly entries: ReadonlyMap<string, Entry>;
  private readonly made = new Map<string, Tensor>();
  readonly path: string;
  private closed = false;

  static {
    identify("Checkpoint", Checkpoint);
    printAsJson(Checkpoint);
  }

  private constructor({ device, path, entries, buffers }: Opened) {
    this.device = device;
    this.path = path;
    this.entries = entries;
    this.buffers = buffers;
    const all = [...buffers.keys()].flatMap(({ metadata }) => Object.entries(metadata));
    this.metadata = Object.freeze(Object.fromEntries(all.reverse()));
  }

  /** @internal Use `openCheckpoint`. */
  static of(opened: Opened): Checkpoint {
    return new Checkpoint(opened);
  }

  /** Size of the files. */
  get byteLength(): number {
    return [...this.buffers.keys()].reduce((sum, { stamp }) => sum + stamp.bytes, 0);
  }

  /** All names, in the order of the files. */
  get names(): string[] {
    return [...this.entries.keys()];
  }

  has(name: string): boolean {
    return this.entries.has(name);
  }

  private entry(op: string, name: string): Entry {
    if (typeof name !== "string") throw wrongKind(op, "name", "be a string", name);
    const entry = this.entries.get(name);
    if (!entry) throw safetensorsError(this.path, "is missing", name);
    return entry;
  }

  /** Dtype, shape and file of a tensor; zero-size tensors too. */
  info(name: string): CheckpointTensor {
    const { dtype, storedDtype, shape, shard } = this.entry("checkpoint.info", name);
    return { dtype, storedDtype, shape, file: shard.path };
  }

  /**
   * A tensor as it lies in its file, read-only; the same one each time. Tensors at offsets that the dtype or the device
   * cannot take, and those converted on request (F64 to `f32`, I64 to `i32` or `u32`), are copied once: the device's
   * counter `copiedTensors` tells. See `tensorAtAnyByte`.
   * @throws MlxtsError `Safetensors` when it is missing, empty, of an element type without a dtype, or out of range
   */
  tensor(name: string): Tensor;
  tensor<D extends Dtype>(name: string, dtype: D): Tensor<D>;
  tensor(name: string, dtype?: Dtype): Tensor {
    if (this.disposed) throw disposedError("checkpoint");
    const entry = this.entry("checkpoint.tensor", name);
    if (dtype !== undefined) checkDtype("checkpoint.tensor", dtype);
    const wanted = dtype ?? entry.dtype;
    const refuse = (reason: string) => safetensorsError(entry.shard.path, reason, name);
    if (wanted === undefined)
      throw refuse(
        `has dtype ${entry.storedDtype}${entry.storedDtype === "F64" ? "; ask for it as f32" : ", which no tensor has"}`,
      );
    if (entry.begin === entry.end) throw refuse(`has shape [${entry.shape.join(", ")}] and no elements`);
    const key = `${wanted} ${name}`;
    let tensor = this.made.get(key);
    if (!tensor) {
      tensor = wanted === entry.dtype ? this.bind(entry, wanted) : this.convert(entry, wanted, refuse);
      this.made.set(key, tensor);
    }
    return tensor;
  }

  /**
   * As `tensor`, but on a CPU nothing is copied: where the file does not align the tensor, it begins at a byte that is no
   * multiple of its elements' size. Only kernels take it whose declaration names the buffer in `anyByte`; other ops refuse it.
   */
  tensorAtAnyByte(name: string): Tensor {
    const { dtype, shape, shard, begin, end } = this.entry("checkpoint.tensorAtAnyByte", name);
    const aligned = dtype === undefined || begin % DTYPES[dtype].bytesPerElement === 0;
    if (aligned || begin === end || this.device.gpu || this.disposed) return this.tensor(name);
    const key = `any byte ${name}`;
    const made =
      this.made.get(key) ?? new TensorClass(this.bufferOf(shard), dtype, shape, { byteOffset: begin, anyByte: true });
    this.made.set(key, made);
    return made;
  }

  private bufferOf(shard: Shard): Buffer {
    return this.buffers.get(shard) as Buffer;
  }

  private bind({ shard, shape, begin, end }: Entry, dtype: Dtype): Tensor {
    if (begin % DTYPES[dtype].bytesPerElement === 0 && begin % this.device.limits.bufferOffsetAlignment === 0)
      return new TensorClass(this.bufferOf(shard), dtype, shape, { byteOffset: begin });
    const copy = this.device.tensor(dtype, shape);
    for (let at = begin; at < end; at += COPY_BYTES)
      copy.buffer.write(new Uint8Array(this.bufferOf(shard).readSync(at, Math.min(COPY_BYTES, end - at))), at - begin);
    this.countCopy();
    return copy;
  }

  private countCopy(): void {
    (this.device as DeviceCore).tally.copiedTensors++;
  }

  private convert(entry: Entry, dtype: Dtype, refuse: (reason: string) => Error): Tensor {
    const { shard, storedDtype, shape, begin, end } = entry;
    if (
      !((storedDtype === "F64" && dtype === "f32") || (storedDtype === "I64" && (dtype === "i32" || dtype === "u32")))
    )
      throw refuse(`has dtype ${storedDtype}, which is not converted to ${dtype}`);
    const [min, max] = dtype === "u32" ? [0n, 0xffffffffn] : [-0x80000000n, 0x7fffffffn];
    const copy = this.device.tensor(dtype, shape);
    for (let at = begin; at < end; at += COPY_BYTES) {
      const bytes = this.bufferOf(shard).readSync(at, Math.min(COPY_BYTES, end - at));
      let raw: RawArray;
      if (storedDtype === "F64") raw = new Float32Array(new Float64Array(bytes));
      else {
        const wide = new BigInt64Array(bytes);
        const outside = wide.find((value) => value < min || value > max);
        if (outside !== undefined) {
          copy.dispose();
          throw refuse(`has the element ${outside}, which does not fit ${dtype}`);
        }
        raw = new DTYPES[dtype].array(wide.length);
        for (let i = 0; i < wide.length; i++) raw[i] = Number(wide[i]);
      }
      copy.buffer.write(raw, ((at - begin) / 8) * 4);
    }
    this.countCopy();
    return copy;
  }

  get disposed(): boolean {
    return this.closed || this.device.disposed;
  }

  /** Unmaps the files once work in flight has left them; every tensor of the checkpoint is dead at once. */
  dispose(): void {
    this.closed = true;
    for (const tensor of this.made.values()) tensor.dispose();
    for (const buffer of this.buffers.values()) buffer.dispose();
  }

  /** Which files, and where. */
  toJSON(): {
    type: "Checkpoint";
    path: string;
    device: string;
    tensors: number;
    byteLength: number;
    disposed: boolean;
  } {
    const { path, device, byteLength: bytes, disposed } = this;
    return { type: "Checkpoint", path, device: device.kind, tensors: this.entries.size, byteLength: bytes, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Opens a checkpoint: one `.safetensors` file, or a folder with `model.safetensors`, with
 * `model.safetensors.index.json` and its shards, or with `model*.safetensors`. Where the device maps files, opening reads
 * headers only; where it has memory of its own, and with `map: false`, all files are copied, as `device.mapFile` does.
 * @throws MlxtsError `Safetensors` for malformed or inconsistent files, `Io` when they cannot be read, `BufferAllocation`
 *   and `CommandBuffer` when they cannot be copied; the reason of `signal` when it is aborted. Nothing stays open then
 */
export async function openCheckpoint(device: Device, path: string, options: FileOptions = {}): Promise<Checkpoint> {
  const op = "openCheckpoint";
  if (!isOurs("Device", device)) throw wrongKind(op, "device", "be a Device", device);
  if (typeof path !== "string") throw wrongKind(op, "path", "be a string", path);
  const checked = readFileOptions(op, options);
  const { files, index } = opening(path, () => checkpointFiles(path));
  const shards = files.map((file) => readShard(file, index));
  const entries = entriesOf(shards, index);
  return Checkpoint.of({ device, path, entries, buffers: await loadShards(device, shards, checked) });
}
