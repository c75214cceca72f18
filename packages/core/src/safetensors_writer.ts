import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { DTYPES, type Dtype, isDtype } from "./dtype.ts";
import { disposedError, ioError, wrongKind, wrongValue } from "./errors.ts";
import { namesOf } from "./options.ts";
import { MAX_HEADER_BYTES, STORED_NAMES } from "./safetensors.ts";
import { isArray } from "./shape.ts";

/** The data starts at a multiple of this, and tensors are ordered so that each starts at a multiple of its element size. */
const DATA_ALIGNMENT = 64;

/** A tensor to be written. */
export interface SafetensorsEntry {
  name: string;
  dtype: Dtype;
  /** Dimensions ≥ 0; rank 0 is allowed. */
  shape: readonly number[];
}

/** A copy of an entry, each value read once, and the tensor's size. */
function readEntry(op: string, given: SafetensorsEntry): { entry: SafetensorsEntry; bytes: number } {
  namesOf(op, "entries", given, "hold objects with name, dtype and shape");
  const { name, dtype, shape } = given;
  const entry = { name, dtype, shape: isArray(shape) ? [...shape] : shape };
  return { entry, bytes: entryBytes(op, entry) };
}

/** The values of an iterable; refuses anything else. */
function listOf<T>(op: string, argument: string, iterable: Iterable<T>): T[] {
  try {
    if (typeof iterable === "object") return [...iterable];
  } catch {
    // Refused below.
  }
  throw wrongKind(op, argument, "be an array or another iterable", iterable);
}

function entryBytes(op: string, { name, dtype, shape }: SafetensorsEntry): number {
  if (typeof name !== "string") throw wrongKind(op, "entries", "have names that are strings", name);
  if (name === "__metadata__") throw wrongValue(op, "entries", "not have the reserved name", name);
  if (!isDtype(dtype)) throw wrongValue(op, "entries", `have dtypes of ${Object.keys(DTYPES).join(", ")}`, dtype);
  if (!Array.isArray(shape)) throw wrongKind(op, "entries", "have shapes that are arrays of dimensions", shape);
  const bytes = shape.reduce((product: number, dim) => product * dim, DTYPES[dtype].bytesPerElement);
  if (!shape.every((dim) => Number.isInteger(dim) && dim >= 0 && dim <= 0x7fffffff) || !Number.isSafeInteger(bytes))
    throw wrongValue(op, "entries", "have dimensions that are integers from 0 to 2147483647", shape);
  return bytes;
}

let temporaries = 0;

/**
 * A safetensors file being written: the tensors are declared first, then written one by one in any order. The file
 * appears under its name when it is complete; until `close` it lies beside it, and `abort` or a failed write removes it.
 */
export class SafetensorsWriter {
  readonly path: string;
  private readonly temporary: string;
  private readonly missing = new Map<string, { begin: number; bytes: number }>();
  private readonly names: ReadonlySet<string>;
  private file: number | undefined;

  /** @internal Use `createSafetensors`. */
  static create(path: string, entries: Iterable<SafetensorsEntry>, metadata: Record<string, string>) {
    return new SafetensorsWriter(path, entries, metadata);
  }

  private constructor(path: string, entries: Iterable<SafetensorsEntry>, metadata: Record<string, string>) {
    const op = "createSafetensors";
    if (typeof path !== "string") throw wrongKind(op, "path", "be a string", path);
    const texts = Object.fromEntries(
      namesOf(op, "metadata", metadata, "be an object of strings").map((key) => [key, metadata[key]]),
    );
    for (const [key, value] of Object.entries(texts))
      if (typeof value !== "string") throw wrongKind(op, "metadata", "hold strings", { [key]: value });
    const sized = listOf(op, "entries", entries).map((entry) => readEntry(op, entry));
    // Tensors with wide elements come first: then all are aligned without gaps.
    sized.sort((a, b) => DTYPES[b.entry.dtype].bytesPerElement - DTYPES[a.entry.dtype].bytesPerElement);
    const header: [string, unknown][] = Object.keys(texts).length > 0 ? [["__metadata__", texts]] : [];
    let end = 0;
    for (const { entry, bytes } of sized) {
      const { name, dtype, shape } = entry;
      if (this.missing.has(name)) throw wrongValue(op, "entries", "have names that differ", `${name} twice`);
      this.missing.set(name, { begin: end, bytes });
      header.push([name, { dtype: STORED_NAMES[dtype], shape, data_offsets: [end, end + bytes] }]);
      end += bytes;
      if (!Number.isSafeInteger(end)) throw wrongValue(op, "entries", "have fewer than 2^53 bytes", end);
    }
    this.names = new Set(this.missing.keys());
    const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
    const dataAt = Math.ceil((8 + json.length) / DATA_ALIGNMENT) * DATA_ALIGNMENT;
    if (dataAt - 8 > MAX_HEADER_BYTES)
      throw wrongValue(op, "entries", `make a header of at most ${MAX_HEADER_BYTES} bytes`, dataAt - 8);
    for (const place of this.missing.values()) place.begin += dataAt;
    const start = new Uint8Array(dataAt).fill(0x20);
    new DataView(start.buffer).setBigUint64(0, BigInt(dataAt - 8), true);
    start.set(json, 8);

    this.path = path;
    this.temporary = `${path}.${process.pid}.${temporaries++}.tmp`;
    this.attempt("create", () => {
      this.file = openSync(this.temporary, "wx");
    });
    this.put(start, 0);
  }

  /** Runs a file operation; when it fails nothing stays behind. */
  private attempt(operation: string, act: () => void): void {
    try {
      act();
    } catch (error) {
      this.abort();
      throw ioError(this.path, operation, error);
    }
  }

  private put(bytes: Uint8Array, position: number): void {
    this.attempt("write", () => {
      for (let at = 0; at < bytes.length; )
        at += writeSync(this.file as number, bytes, at, Math.min(bytes.length - at, 1 << 30), position + at);
    });
  }

  /** Writes a declared tensor, once: its elements as they lie in memory. */
  write(name: string, data: ArrayBufferView): void {
    const op = "safetensors.write";
    if (this.file === undefined) throw disposedError("safetensors writer");
    if (!this.names.has(name)) throw wrongValue(op, "name", "be one of the declared tensors", name);
    const place = this.missing.get(name);
    if (!place) throw wrongValue(op, "name", "be written once", `${name} again`);
    if (!ArrayBuffer.isView(data)) throw wrongKind(op, "data", "be a typed array or DataView", data);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (bytes.length !== place.bytes) throw wrongValue(op, "data", `have ${place.bytes} bytes`, bytes.length);
    this.put(bytes, place.begin);
    this.missing.delete(name);
  }

  /** Completes the file and gives it its name. Every tensor must have been written. */
  close(): void {
    if (this.file === undefined) throw disposedError("safetensors writer");
    const missing = [...this.missing].find(([, { bytes }]) => bytes > 0)?.[0];
    if (missing !== undefined)
      throw wrongValue("safetensors.close", "tensors", "all have been written", `none for ${missing}`);
    this.attempt("close", () => {
      fsyncSync(this.file as number);
      closeSync(this.file as number);
      this.file = undefined;
      renameSync(this.temporary, this.path);
    });
  }

  /** Gives up: nothing of the file stays. Does nothing after `close`. */
  abort(): void {
    if (this.file !== undefined) closeSync(this.file);
    this.file = undefined;
    try {
      rmSync(this.temporary, { force: true });
    } catch {
      // The caller reports the error that made it impossible to create the file.
    }
  }

  [Symbol.dispose](): void {
    this.abort();
  }
}

/**
 * Starts a safetensors file whose tensors are written one by one.
 * @throws `InvalidArgument` for entries that cannot be written, MlxtsError `Io` when the file cannot
 */
export function createSafetensors(
  path: string,
  entries: Iterable<SafetensorsEntry>,
  metadata: Record<string, string> = {},
): SafetensorsWriter {
  return SafetensorsWriter.create(path, entries, metadata);
}

/** Writes a safetensors file from host arrays: `[name, { dtype, shape, data }]`. */
export function writeSafetensors(
  path: string,
  tensors: Iterable<readonly [string, Omit<SafetensorsEntry, "name"> & { data: ArrayBufferView }]>,
  metadata: Record<string, string> = {},
): void {
  const op = "writeSafetensors";
  const all = listOf(op, "tensors", tensors).map((tensor): [string, SafetensorsEntry & { data: ArrayBufferView }] => {
    if (!isArray(tensor)) throw wrongKind(op, "tensors", "hold pairs of name and tensor", tensor);
    const [name, given] = tensor;
    namesOf(op, "tensors", given, "hold pairs of name and tensor");
    return [name, { name, dtype: given.dtype, shape: given.shape, data: given.data }];
  });
  using writer = createSafetensors(
    path,
    all.map(([, entry]) => entry),
    metadata,
  );
  for (const [name, { data }] of all) writer.write(name, data);
  writer.close();
}
