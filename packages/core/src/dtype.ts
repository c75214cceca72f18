/** Element types of tensors. */
export type Dtype = "f32" | "f16" | "bf16" | "u32" | "i32" | "u16" | "i16" | "u8" | "i8" | "i64";

export type FloatDtype = "f32" | "f16" | "bf16";

/** Activation dtypes every float op takes. */
export const FLOATS = ["f32", "f16", "bf16"] as const satisfies readonly Dtype[];

type NumberArray = Float32Array | Uint32Array | Int32Array | Uint16Array | Int16Array | Uint8Array | Int8Array;
/** The typed arrays that carry tensor data; 16-bit floats travel as Uint16Array bits. */
export type RawArray = NumberArray | BigInt64Array;
export type ArrayOf<D extends Dtype> = D extends "f32"
  ? Float32Array
  : D extends "f16" | "bf16" | "u16"
    ? Uint16Array
    : D extends "u32"
      ? Uint32Array
      : D extends "i32"
        ? Int32Array
        : D extends "i16"
          ? Int16Array
          : D extends "u8"
            ? Uint8Array
            : D extends "i8"
              ? Int8Array
              : BigInt64Array;

type RawArrayConstructor = {
  readonly BYTES_PER_ELEMENT: number;
  new (length: number): RawArray;
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): RawArray;
};

/** Bytes and the JavaScript view of each dtype. */
export const DTYPES: Readonly<Record<Dtype, { bytes: number; array: RawArrayConstructor }>> = {
  f32: { bytes: 4, array: Float32Array },
  f16: { bytes: 2, array: Uint16Array },
  bf16: { bytes: 2, array: Uint16Array },
  u32: { bytes: 4, array: Uint32Array },
  i32: { bytes: 4, array: Int32Array },
  u16: { bytes: 2, array: Uint16Array },
  i16: { bytes: 2, array: Int16Array },
  u8: { bytes: 1, array: Uint8Array },
  i8: { bytes: 1, array: Int8Array },
  i64: { bytes: 8, array: BigInt64Array },
};

/** Whether a value names an element type. */
export function isDtype(value: unknown): value is Dtype {
  return typeof value === "string" && Object.hasOwn(DTYPES, value);
}

export function isFloat(dtype: Dtype): dtype is FloatDtype {
  return dtype === "f32" || dtype === "f16" || dtype === "bf16";
}

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

function bitsOf(value: number): number {
  float[0] = value;
  return word[0] as number;
}

function fromBits(bits: number): number {
  word[0] = bits;
  return float[0] as number;
}

/** f32 → bf16 bits: nearest, ties to even; subnormals kept, NaN stays NaN. */
export function toBf16Bits(value: number): number {
  const bits = bitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** bf16 bits → the number, exactly. */
export function fromBf16Bits(bits: number): number {
  return fromBits((bits << 16) >>> 0);
}

/** f32 → f16 bits: nearest, ties to even; |x| ≥ 65520 becomes infinity, subnormals kept, NaN stays NaN. */
export function toF16Bits(value: number): number {
  const bits = bitsOf(value);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  // Adding 0.5 aligns a subnormal's mantissa to f16's grid, with f32's own rounding.
  if (magnitude < 0x38800000) return sign | (bitsOf(Math.fround(fromBits(magnitude) + 0.5)) - 0x3f000000);
  return sign | ((magnitude + 0xfff + ((magnitude >>> 13) & 1) - 0x38000000) >>> 13);
}

/** f16 bits → the number, exactly. */
export function fromF16Bits(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const mantissa = bits & 0x3ff;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1 + mantissa / 1024) * 2 ** (exponent - 15));
}

/** `value` rounded to a float dtype (through f32, as stores do). */
export function roundTo(dtype: FloatDtype, value: number): number {
  if (dtype === "bf16") return fromBf16Bits(toBf16Bits(value));
  if (dtype === "f16") return fromF16Bits(toF16Bits(value));
  return Math.fround(value);
}

/** Numbers → the raw array of a dtype; floats are rounded, integers must fit. */
export function encodeNumbers(dtype: Dtype, values: ArrayLike<number>): RawArray {
  const out = new DTYPES[dtype].array(values.length);
  if (out instanceof BigInt64Array) {
    for (let i = 0; i < out.length; i++) out[i] = BigInt(values[i] as number);
    return out;
  }
  if (dtype === "bf16") for (let i = 0; i < out.length; i++) out[i] = toBf16Bits(values[i] as number);
  else if (dtype === "f16") for (let i = 0; i < out.length; i++) out[i] = toF16Bits(values[i] as number);
  else out.set(values);
  return out;
}

/** A raw array of a dtype → its numbers, exactly. */
export function decodeNumbers(dtype: Dtype, raw: RawArray): Float64Array {
  const out = new Float64Array(raw.length);
  const convert = dtype === "bf16" ? fromBf16Bits : dtype === "f16" ? fromF16Bits : Number;
  for (let i = 0; i < out.length; i++) out[i] = convert(raw[i] as number);
  return out;
}
