import { closeSync, fstatSync, readSync } from "node:fs";
import { DTYPES, type Dtype, type RawArray } from "./dtype.ts";
import { ioError, MlxtsError, show, wrongKind } from "./errors.ts";
import { lfsPointer, openForReading } from "./files.ts";
import { duplicateName } from "./json_names.ts";

/** Element types of files: the bytes of an element, and the dtype that carries it, if there is one. */
const STORED = {
  F32: { bytes: 4, dtype: "f32" },
  F16: { bytes: 2, dtype: "f16" },
  BF16: { bytes: 2, dtype: "bf16" },
  U32: { bytes: 4, dtype: "u32" },
  I32: { bytes: 4, dtype: "i32" },
  U16: { bytes: 2, dtype: "u16" },
  I16: { bytes: 2, dtype: "i16" },
  U8: { bytes: 1, dtype: "u8" },
  I8: { bytes: 1, dtype: "i8" },
  I64: { bytes: 8, dtype: "i64" },
  BOOL: { bytes: 1, dtype: "u8" },
  F8_E4M3: { bytes: 1, dtype: "u8" },
  F8_E5M2: { bytes: 1, dtype: "u8" },
  F8_E8M0: { bytes: 1, dtype: "u8" },
  F64: { bytes: 8, dtype: undefined },
  U64: { bytes: 8, dtype: undefined },
  C64: { bytes: 8, dtype: undefined },
  F6_E2M3: { bytes: 0.75, dtype: undefined },
  F6_E3M2: { bytes: 0.75, dtype: undefined },
  F4: { bytes: 0.5, dtype: undefined },
} as const satisfies Record<string, { bytes: number; dtype: Dtype | undefined }>;

/** The name of an element type in a safetensors file. */
export type StoredDtype = keyof typeof STORED;

/** The stored name of each dtype. */
export const STORED_NAMES = Object.fromEntries(
  Object.keys(DTYPES).map((dtype) => [dtype, dtype.toUpperCase()]),
) as Record<Dtype, StoredDtype>;

export const MAX_HEADER_BYTES = 100_000_000;
/** The header is an object of objects with arrays. */
const MAX_HEADER_DEPTH = 3;

/** A tensor as the header describes it. `begin` and `end` count from the start of the file. */
export interface StoredTensor {
  readonly storedDtype: StoredDtype;
  /** The dtype that carries the elements; `undefined` for F64, U64, C64, F6 and F4, which must be converted. */
  readonly dtype: Dtype | undefined;
  /** Rank 0 is given as [1]; dimensions may be 0. */
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

export interface SafetensorsHeader {
  readonly tensors: Map<string, StoredTensor>;
  readonly metadata: Record<string, string>;
}

/** Text from a file, shortened and without control characters, for a one-line message. */
function inLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not get into a message
  const plain = text.replace(/[\u0000-\u001f]/g, (c) => JSON.stringify(c).slice(1, -1));
  return plain.length > 400 ? `${plain.slice(0, 400)}…` : plain;
}

export function safetensorsError(path: string, reason: string, tensor?: string, cause?: unknown): MlxtsError {
  const where = tensor === undefined ? path : `${path}: tensor \`${inLine(tensor)}\``;
  return new MlxtsError(
    "Safetensors",
    `${where}: ${inLine(reason)}`,
    { path, reason, ...(tensor !== undefined && { tensor }) },
    cause,
  );
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** Parses UTF-8 bytes as a JSON object; refuses names that occur twice. */
export function parseJsonObject(path: string, bytes: Uint8Array, what: string, maxDepth: number) {
  const found = duplicateName(bytes, maxDepth);
  if (found === "too deep") throw safetensorsError(path, `the ${what} is nested deeper than ${maxDepth} levels`);
  if (found) throw safetensorsError(path, `the ${what} has the name \`${found.name}\` twice`, found.name);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    throw safetensorsError(path, `the ${what} is not JSON in UTF-8: ${(error as Error).message}`, undefined, error);
  }
  if (!isObject(value)) throw safetensorsError(path, `the ${what} is not a JSON object`);
  return value;
}

/** Refuses what is not an object of strings. */
export function stringMap(path: string, value: unknown, what: string): Record<string, string> {
  if (!isObject(value)) throw safetensorsError(path, `\`${what}\` must be an object of strings`);
  for (const [key, text] of Object.entries(value))
    if (typeof text !== "string") throw safetensorsError(path, `\`${what}\` must hold strings, \`${key}\` is not one`);
  return value as Record<string, string>;
}

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function describeTensor(path: string, name: string, value: unknown, dataAt: number, fileBytes: number): StoredTensor {
  const refuse = (reason: string) => safetensorsError(path, reason, name);
  if (!isObject(value)) throw refuse("must be an object with dtype, shape and data_offsets");
  const { dtype, shape, data_offsets: offsets } = value;
  if (typeof dtype !== "string" || !Object.hasOwn(STORED, dtype))
    throw refuse(`dtype must be one of ${Object.keys(STORED).join(", ")}, got ${JSON.stringify(dtype)}`);
  const storedDtype = dtype as StoredDtype;
  if (!Array.isArray(shape) || !shape.every((dim) => isSize(dim) && dim <= 0x7fffffff))
    throw refuse("shape must be an array of integers from 0 to 2147483647");
  let bytes: number = STORED[storedDtype].bytes;
  for (const dim of shape as number[]) {
    bytes *= dim;
    if (bytes > Number.MAX_SAFE_INTEGER) throw refuse(`shape ${show(shape)} has too many elements`);
  }
  if (!Number.isInteger(bytes)) throw refuse(`shape ${show(shape)} does not fill whole bytes of ${storedDtype}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !isSize(offsets[0]) || !isSize(offsets[1]))
    throw refuse("data_offsets must be two integers ≥ 0");
  const [begin, end] = offsets as [number, number];
  if (end - begin !== bytes)
    throw refuse(`data_offsets [${begin}, ${end}] must span the ${bytes} bytes of ${storedDtype} ${show(shape)}`);
  if (end > fileBytes - dataAt)
    throw refuse(`data_offsets [${begin}, ${end}] reach past the file's ${fileBytes - dataAt} data bytes`);
  return {
    storedDtype,
    dtype: STORED[storedDtype].dtype,
    shape: shape.length === 0 ? [1] : (shape as number[]),
    begin: dataAt + begin,
    end: dataAt + end,
  };
}

function parseHeader(path: string, bytes: Uint8Array, fileBytes: number): SafetensorsHeader {
  const header = parseJsonObject(path, bytes, "header", MAX_HEADER_DEPTH);
  const tensors = new Map<string, StoredTensor>();
  let metadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(header))
    if (name === "__metadata__") metadata = stringMap(path, value, name);
    else tensors.set(name, describeTensor(path, name, value, 8 + bytes.length, fileBytes));
  const placed = [...tensors].filter(([, { begin, end }]) => end > begin).sort(([, a], [, b]) => a.begin - b.begin);
  for (let i = 1; i < placed.length; i++) {
    const [[before, { end }], [name, { begin }]] = [placed[i - 1], placed[i]] as [
      (typeof placed)[0],
      (typeof placed)[0],
    ];
    if (begin < end) throw safetensorsError(path, `its bytes overlap those of \`${before}\``, name);
  }
  return { tensors, metadata };
}

/** Fills `into` from `position` on, in reads of at most 1 GiB, which every system takes. */
function readFully(path: string, file: number, into: Uint8Array, position: number): void {
  for (let at = 0; at < into.length; ) {
    let got: number;
    try {
      got = readSync(file, into, at, Math.min(into.length - at, 1 << 30), position + at);
    } catch (error) {
      throw ioError(path, "read", error);
    }
    if (got === 0) throw safetensorsError(path, `ends at byte ${position + at}, before the end of its contents`);
    at += got;
  }
}

/** Size and age of an open file, to notice that it changed. */
export interface FileStamp {
  readonly bytes: number;
  readonly modifiedMs: number;
}

const beginsLikeJson = (start: Uint8Array) => /^\s*[[{]/.test(Buffer.from(start).toString("latin1"));

/** Opens a file, reads and checks its header, and hands both to `use`. */
export function withSafetensors<T>(
  path: string,
  use: (header: SafetensorsHeader, stamp: FileStamp, read: (into: Uint8Array, position: number) => void) => T,
): T {
  if (typeof path !== "string") throw wrongKind("readSafetensors", "path", "be a string", path);
  const file = openForReading(path);
  try {
    const stat = fstatSync(file);
    if (!stat.isFile()) throw safetensorsError(path, "is not a file");
    const read = (into: Uint8Array, position: number) => readFully(path, file, into, position);
    const start = new Uint8Array(Math.min(stat.size, 64));
    read(start, 0);
    const pointer = lfsPointer(start);
    if (pointer) throw safetensorsError(path, pointer);
    const refuse = (reason: string) =>
      safetensorsError(path, beginsLikeJson(start) ? "is a text in JSON, not a safetensors file" : reason);
    if (stat.size < 8) throw refuse(`has ${stat.size} bytes, fewer than the 8 of a header length`);
    const headerBytes = new DataView(start.buffer).getBigUint64(0, true);
    if (headerBytes > BigInt(stat.size - 8))
      throw refuse(`the header's ${headerBytes} bytes reach past the file's ${stat.size} bytes`);
    if (headerBytes > BigInt(MAX_HEADER_BYTES))
      throw safetensorsError(path, `the header must have at most ${MAX_HEADER_BYTES} bytes, got ${headerBytes}`);
    const bytes = new Uint8Array(Number(headerBytes));
    read(bytes, 8);
    return use(parseHeader(path, bytes, stat.size), { bytes: stat.size, modifiedMs: stat.mtimeMs }, read);
  } finally {
    closeSync(file);
  }
}

/** A tensor on the host. */
export interface HostTensor {
  dtype: Dtype;
  shape: number[];
  data: RawArray;
}

/** A tensor's elements as its file has them. */
export interface HostBytes {
  /** The element type in the file. */
  storedDtype: StoredDtype;
  /** The dtype that carries the elements; `undefined` for F64, U64, C64, F6 and F4, which must be converted. */
  dtype: Dtype | undefined;
  shape: number[];
  /** In a buffer of their own. */
  bytes: Uint8Array<ArrayBuffer>;
}

/** Memory for a tensor. A valid header may ask for more than the host has, when its file is sparse. */
function hostBytes(path: string, tensor: string, bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (error) {
    throw safetensorsError(path, `has ${bytes} bytes, more than the host can hold`, tensor, error);
  }
}

/**
 * Reads a whole safetensors file as it is, of any element types.
 * @throws MlxtsError `Safetensors` for a malformed file, `Io` when it cannot be read
 */
export function readStoredSafetensors(path: string): Map<string, HostBytes> {
  if (typeof path !== "string") throw wrongKind("readStoredSafetensors", "path", "be a string", path);
  return withSafetensors(path, ({ tensors }, _, read) => {
    const out = new Map<string, HostBytes>();
    for (const [name, { storedDtype, dtype, shape, begin, end }] of tensors) {
      const bytes = hostBytes(path, name, end - begin);
      read(bytes, begin);
      out.set(name, { storedDtype, dtype, shape: [...shape], bytes });
    }
    return out;
  });
}

/**
 * Reads a whole safetensors file into host arrays. BOOL and 8-bit floats come as `u8`; F64 is rounded to `f32`.
 * @throws MlxtsError `Safetensors` for a malformed file or a tensor of U64, C64, F6 or F4, `Io` when it cannot be read
 */
export function readSafetensors(path: string): {
  tensors: Map<string, HostTensor>;
  metadata: Record<string, string>;
} {
  if (typeof path !== "string") throw wrongKind("readSafetensors", "path", "be a string", path);
  return withSafetensors(path, ({ tensors, metadata }, _, read) => {
    const out = new Map<string, HostTensor>();
    for (const [name, { storedDtype, dtype, shape, begin, end }] of tensors) {
      if (!dtype && storedDtype !== "F64")
        throw safetensorsError(path, `has dtype ${storedDtype}, which cannot be read`, name);
      const bytes = hostBytes(path, name, end - begin);
      read(bytes, begin);
      const data = dtype ? new DTYPES[dtype].array(bytes.buffer) : new Float32Array(new Float64Array(bytes.buffer));
      out.set(name, { dtype: dtype ?? "f32", shape: [...shape], data });
    }
    return { tensors: out, metadata };
  });
}
