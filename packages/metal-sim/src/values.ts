import { MetalSimError } from "./errors.ts";

/** A scalar type: its name in safetensors files and in MSL, and how it lies in memory. */
interface Scalar {
  stored: string;
  bytes: number;
  get(view: DataView, at: number): number;
  set(view: DataView, at: number, value: number): void;
}

/** f32 bits → f16 bits, to nearest even. */
function halfBits(value: number): number {
  const f = new DataView(new ArrayBuffer(4));
  f.setFloat32(0, value);
  const bits = f.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const mantissa = bits & 0x7fffff;
  if (exponent >= 31) return sign | 0x7c00 | (exponent === 143 && mantissa ? 0x200 : 0);
  if (exponent <= -11) return sign;
  const shift = exponent <= 0 ? 14 - exponent : 13;
  const whole = exponent <= 0 ? mantissa | 0x800000 : mantissa | (exponent << 23);
  const rest = whole & ((1 << shift) - 1);
  const kept = whole >>> shift;
  const middle = 1 << (shift - 1);
  return sign | (kept + (rest > middle || (rest === middle && (kept & 1) === 1) ? 1 : 0));
}

function halfValue(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  const size =
    exponent === 31
      ? mantissa
        ? Number.NaN
        : Number.POSITIVE_INFINITY
      : exponent === 0
        ? mantissa * 2 ** -24
        : (1 + mantissa / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}

function bfloatBits(value: number): number {
  const f = new DataView(new ArrayBuffer(4));
  f.setFloat32(0, value);
  const bits = f.getUint32(0);
  if (Number.isNaN(value)) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function bfloatValue(bits: number): number {
  const f = new DataView(new ArrayBuffer(4));
  f.setUint32(0, bits * 65536);
  return f.getFloat32(0);
}

const SCALARS: Record<string, Scalar> = {
  f32: {
    stored: "F32",
    bytes: 4,
    get: (v, at) => v.getFloat32(at, true),
    set: (v, at, x) => v.setFloat32(at, x, true),
  },
  f16: {
    stored: "F16",
    bytes: 2,
    get: (v, at) => halfValue(v.getUint16(at, true)),
    set: (v, at, x) => v.setUint16(at, halfBits(x), true),
  },
  bf16: {
    stored: "BF16",
    bytes: 2,
    get: (v, at) => bfloatValue(v.getUint16(at, true)),
    set: (v, at, x) => v.setUint16(at, bfloatBits(x), true),
  },
  u32: { stored: "U32", bytes: 4, get: (v, at) => v.getUint32(at, true), set: (v, at, x) => v.setUint32(at, x, true) },
  i32: { stored: "I32", bytes: 4, get: (v, at) => v.getInt32(at, true), set: (v, at, x) => v.setInt32(at, x, true) },
  u16: { stored: "U16", bytes: 2, get: (v, at) => v.getUint16(at, true), set: (v, at, x) => v.setUint16(at, x, true) },
  i16: { stored: "I16", bytes: 2, get: (v, at) => v.getInt16(at, true), set: (v, at, x) => v.setInt16(at, x, true) },
  u8: { stored: "U8", bytes: 1, get: (v, at) => v.getUint8(at), set: (v, at, x) => v.setUint8(at, x) },
  i8: { stored: "I8", bytes: 1, get: (v, at) => v.getInt8(at), set: (v, at, x) => v.setInt8(at, x) },
};

const MSL: Record<string, string> = {
  float: "f32",
  half: "f16",
  bfloat: "bf16",
  uint: "u32",
  int: "i32",
  ushort: "u16",
  short: "i16",
  uchar: "u8",
  char: "i8",
  uint8_t: "u8",
  uint32_t: "u32",
  int32_t: "i32",
  uint16_t: "u16",
  atomic_uint: "u32",
  atomic_int: "i32",
};

/** The scalar type of an MSL type or of its components; f32 for a struct. */
export const scalarOf = (type: string): string =>
  MSL[type] ?? MSL[type.replace(/^packed_/, "").replace(/[234]$/, "")] ?? "f32";

export function scalar(name: string): Scalar {
  const found = Object.hasOwn(SCALARS, name) ? SCALARS[name] : undefined;
  if (!found)
    throw new MetalSimError("InvalidArgument", `no type is called ${name}: ${Object.keys(SCALARS).join(", ")}`);
  return found;
}

/** The name of a stored type, as in safetensors headers. */
export const storedName = (stored: string) =>
  Object.keys(SCALARS).find((name) => SCALARS[name]?.stored === stored) ?? "u8";

/** Values one behind the other; each keeps its own type. */
export function pack(values: readonly { type: string; value: number }[]): Uint8Array<ArrayBuffer> {
  const size = values.reduce((sum, { type }) => sum + scalar(type).bytes, 0);
  const out = new Uint8Array(size);
  const view = new DataView(out.buffer);
  let at = 0;
  for (const { type, value } of values) {
    scalar(type).set(view, at, value);
    at += scalar(type).bytes;
  }
  return out;
}

/** `u32:4096,f32:1e-5,0` → bytes; a value without type has the type before it. */
export function parseValues(text: string): Uint8Array<ArrayBuffer> {
  let type = "f32";
  const values = text.split(",").map((item) => {
    const colon = item.indexOf(":");
    if (colon >= 0) type = item.slice(0, colon);
    const value = Number(item.slice(colon + 1));
    if (Number.isNaN(value) && item.slice(colon + 1) !== "nan")
      throw new MetalSimError("InvalidArgument", `${JSON.stringify(item)} is not a number`);
    return { type, value };
  });
  return pack(values);
}

/** Numbers of a normal distribution, the same for the same seed. */
function normals(count: number, seed: number): number[] {
  let state = (seed + 0x9e3779b9) >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return Array.from(
    { length: count },
    () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()),
  );
}

/** `zeros:4096`, `nan:4096`, `random:4096[:SEED]`, `count:4096` (0, 1, 2, …), of one type. */
export function fill(spec: string, type: string): Uint8Array<ArrayBuffer> {
  const [kind, size, seed] = spec.split(":");
  const count = Number(size);
  if (!Number.isInteger(count) || count < 1)
    throw new MetalSimError(
      "InvalidArgument",
      `${JSON.stringify(spec)} must be zeros:N, nan:N, count:N or random:N[:SEED]`,
    );
  if (kind === "zeros") return new Uint8Array(count * scalar(type).bytes);
  if (kind === "nan") return new Uint8Array(count * scalar(type).bytes).fill(0xff);
  if (kind === "count") return pack(Array.from({ length: count }, (_, value) => ({ type, value })));
  if (kind === "random") return pack(normals(count, Number(seed ?? 0)).map((value) => ({ type, value })));
  throw new MetalSimError(
    "InvalidArgument",
    `${JSON.stringify(spec)} must be zeros:N, nan:N, count:N or random:N[:SEED]`,
  );
}

export function unpack(bytes: Uint8Array, type: string, count: number): number[] {
  const { bytes: size, get } = scalar(type);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: Math.min(count, Math.floor(bytes.length / size)) }, (_, i) => get(view, i * size));
}
