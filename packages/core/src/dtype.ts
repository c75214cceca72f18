import { MlxtsError, wrongKind, wrongValue } from "./errors.ts";

/** Element types of tensors. */
export type Dtype = "f32" | "f16" | "bf16" | "u32" | "i32" | "u16" | "i16" | "u8" | "i8" | "i64";

export type FloatDtype = "f32" | "f16" | "bf16";

/** Activation dtypes every float op takes. */
export const FLOATS = Object.freeze(["f32", "f16", "bf16"] as const satisfies readonly Dtype[]);

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
  readonly name: string;
  readonly BYTES_PER_ELEMENT: number;
  new (length: number): RawArray;
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): RawArray;
};

/** The size of an element and the typed array of each dtype. */
export const DTYPES: Readonly<Record<Dtype, Readonly<{ bytesPerElement: number; array: RawArrayConstructor }>>> = {
  f32: { bytesPerElement: 4, array: Float32Array },
  f16: { bytesPerElement: 2, array: Uint16Array },
  bf16: { bytesPerElement: 2, array: Uint16Array },
  u32: { bytesPerElement: 4, array: Uint32Array },
  i32: { bytesPerElement: 4, array: Int32Array },
  u16: { bytesPerElement: 2, array: Uint16Array },
  i16: { bytesPerElement: 2, array: Int16Array },
  u8: { bytesPerElement: 1, array: Uint8Array },
  i8: { bytesPerElement: 1, array: Int8Array },
  i64: { bytesPerElement: 8, array: BigInt64Array },
};
for (const entry of Object.values(DTYPES)) Object.freeze(entry);
Object.freeze(DTYPES);

/** Whether a value names an element type. */
export function isDtype(value: unknown): value is Dtype {
  return typeof value === "string" && Object.hasOwn(DTYPES, value);
}

/** Refuses what is not the name of an element type. */
export function checkDtype(op: string, dtype: unknown): asserts dtype is Dtype {
  if (isDtype(dtype)) return;
  const error = typeof dtype === "string" ? wrongValue : wrongKind;
  throw error(op, "dtype", `be one of ${Object.keys(DTYPES).join(", ")}`, dtype);
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

/** 2 to the power that each exponent of an f16 stands for. */
const F16_POWERS = Float64Array.from({ length: 31 }, (_, exponent) => 2 ** (exponent - 15));

/** f16 bits → the number, exactly. */
export function fromF16Bits(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const mantissa = bits & 0x3ff;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1 + mantissa / 1024) * (F16_POWERS[exponent] as number));
}

/** `value` rounded to a float dtype (through f32, as stores do). */
export function roundTo(dtype: FloatDtype, value: number): number {
  if (!isFloat(dtype)) throw wrongKind("roundTo", "dtype", `be one of ${FLOATS.join(", ")}`, dtype);
  if (typeof value !== "number") throw wrongKind("roundTo", "value", "be a number", value);
  if (dtype === "bf16") return fromBf16Bits(toBf16Bits(value));
  if (dtype === "f16") return fromF16Bits(toF16Bits(value));
  return Math.fround(value);
}

const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object;
const getterOf = (name: symbol | "length") =>
  (Object.getOwnPropertyDescriptor(typedArray, name) as { get(this: unknown): unknown }).get;
const nameOf = getterOf(Symbol.toStringTag);
const lengthOf = getterOf("length");

/** The name of a typed array's class, also in another realm or of a subclass; undefined for other values. */
const typedArrayName = (value: unknown) => nameOf.call(value) as string | undefined;

/** The integers that fit a dtype. */
const INTEGERS: Partial<Record<Dtype, readonly [min: number, max: number]>> = {
  u32: [0, 0xffffffff],
  i32: [-0x80000000, 0x7fffffff],
  u16: [0, 0xffff],
  i16: [-0x8000, 0x7fff],
  u8: [0, 0xff],
  i8: [-0x80, 0x7f],
};
const I64 = [-(2n ** 63n), 2n ** 63n - 1n] as const;

/** The length of an array, a typed array or an object like one. */
function arrayLength(op: string, data: unknown): number {
  const fail = (): never => {
    throw wrongKind(op, "data", "be an array of numbers", data);
  };
  if (data === null || typeof data !== "object") fail();
  if (typedArrayName(data) !== undefined) return lengthOf.call(data) as number;
  let length: unknown;
  try {
    length = (data as { length: unknown }).length;
  } catch {
    fail();
  }
  if (!Number.isSafeInteger(length) || (length as number) < 0) fail();
  return length as number;
}

function newArray(dtype: Dtype, length: number): RawArray {
  try {
    return new DTYPES[dtype].array(length);
  } catch (error) {
    const bytes = length * DTYPES[dtype].bytesPerElement;
    throw new MlxtsError("BufferAllocation", `cannot allocate ${bytes} bytes for an array`, { bytes }, error);
  }
}

/**
 * The raw array of numbers: a typed array of the dtype as it is, other numbers rounded. Integers must be integers and
 * fit. Each element is read once.
 * @internal
 */
export function rawNumbers(op: string, dtype: Dtype, data: ArrayLike<number> | RawArray, size?: number): RawArray {
  const length = arrayLength(op, data);
  if (size !== undefined && length !== size) throw wrongValue(op, "data", `have ${size} elements`, length);
  if (typedArrayName(data) === DTYPES[dtype].array.name) return data as RawArray;
  return convert(op, dtype, data as ArrayLike<number>, length);
}

function convert(op: string, dtype: Dtype, data: ArrayLike<number>, length: number): RawArray {
  const out = newArray(dtype, length);
  const notNumber = (i: number, value: unknown) => wrongKind(op, `data[${i}]`, "be a number", value);
  const limits = INTEGERS[dtype];
  if (out instanceof BigInt64Array) {
    const rule = `be an integer from ${I64[0]} to ${I64[1]}`;
    for (let i = 0; i < length; i++) {
      const value: unknown = data[i];
      if (typeof value !== "number" && typeof value !== "bigint") throw notNumber(i, value);
      const integer = typeof value === "bigint" || Number.isInteger(value) ? BigInt(value) : undefined;
      if (integer === undefined || integer < I64[0] || integer > I64[1])
        throw wrongValue(op, `data[${i}]`, rule, value);
      out[i] = integer;
    }
  } else if (limits) {
    const [min, max] = limits;
    for (let i = 0; i < length; i++) {
      const value: unknown = data[i];
      if (typeof value !== "number") throw notNumber(i, value);
      if (!(Number.isInteger(value) && value >= min && value <= max))
        throw wrongValue(op, `data[${i}]`, `be an integer from ${min} to ${max}`, value);
      out[i] = value;
    }
  } else {
    const bits = dtype === "bf16" ? toBf16Bits : dtype === "f16" ? toF16Bits : Number;
    for (let i = 0; i < length; i++) {
      const value: unknown = data[i];
      if (typeof value !== "number") throw notNumber(i, value);
      out[i] = bits(value);
    }
  }
  return out;
}

/**
 * Numbers → the raw array of a dtype: floats are rounded, integers must be integers and fit.
 * @throws TypeError or RangeError naming the first element that cannot be taken
 */
export function encodeNumbers(dtype: Dtype, values: ArrayLike<number>): RawArray {
  checkDtype("encodeNumbers", dtype);
  return convert("encodeNumbers", dtype, values, arrayLength("encodeNumbers", values));
}

/** A raw array of a dtype → its numbers, exactly. */
export function decodeNumbers(dtype: Dtype, raw: RawArray): Float64Array {
  checkDtype("decodeNumbers", dtype);
  const { name } = DTYPES[dtype].array;
  if (typedArrayName(raw) !== name) throw wrongKind("decodeNumbers", "raw", `be a ${name}`, raw);
  const out = new Float64Array(lengthOf.call(raw) as number);
  const convert = dtype === "bf16" ? fromBf16Bits : dtype === "f16" ? fromF16Bits : Number;
  for (let i = 0; i < out.length; i++) out[i] = convert(raw[i] as number);
  return out;
}
