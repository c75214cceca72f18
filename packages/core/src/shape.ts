// Shapes, checked. Each value is read once and its copy is used.
import { checkDtype, DTYPES, type Dtype } from "./dtype.ts";
import { wrongKind, wrongValue } from "./errors.ts";

/** `Array.isArray`, which throws for a revoked Proxy. */
export function isArray(value: unknown): value is unknown[] {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

/** A frozen copy of a shape's dimensions, each an integer from 1 to 2³¹−1. */
export function copyShape(op: string, shape: readonly number[], argument = "shape"): readonly number[] {
  if (!isArray(shape)) throw wrongKind(op, argument, "be an array of dimensions", shape);
  const copy: number[] = [];
  // By index, since the array's own iterator could give other dimensions each time.
  for (let i = 0; i < shape.length; i++) {
    const dim: unknown = shape[i];
    if (!Number.isInteger(dim) || (dim as number) < 1 || (dim as number) > 0x7fffffff)
      throw wrongValue(op, argument, "have dimensions that are integers from 1 to 2147483647", shape);
    copy.push(dim as number);
  }
  if (copy.length === 0) throw wrongValue(op, argument, "have at least one dimension", shape);
  return Object.freeze(copy);
}

/** The product of checked dimensions; refuses 2^53 and more. */
export function countOf(op: string, shape: readonly number[], argument = "shape"): number {
  let count = 1;
  for (let i = 0; i < shape.length; i++) {
    count *= shape[i] as number;
    if (!Number.isSafeInteger(count)) throw wrongValue(op, argument, "have a number of elements below 2^53", shape);
  }
  return count;
}

/** Elements of a shape; every dimension an integer from 1 to 2³¹−1, the product a safe integer. */
export function elementCount(op: string, shape: readonly number[], argument = "shape"): number {
  return countOf(op, copyShape(op, shape, argument), argument);
}

/** Bytes of `count` elements; refuses 2^53 and more. `shape` is for the message. */
export function bytesOf(op: string, dtype: Dtype, shape: readonly number[], count: number): number {
  const bytes = count * DTYPES[dtype].bytesPerElement;
  if (!Number.isSafeInteger(bytes)) throw wrongValue(op, "shape", "have fewer than 2^53 bytes", shape);
  return bytes;
}

/** The shape of scratch as bytes, of which there is a multiple of 256: one dimension counts too few for all of it. */
export const scratchShape = (bytes: number): [number, number] => [bytes / 256, 256];

/** Bytes of a tensor of that dtype and shape. */
export function tensorBytes(dtype: Dtype, shape: readonly number[], op = "tensorBytes"): number {
  checkDtype(op, dtype);
  return bytesOf(op, dtype, shape, elementCount(op, shape));
}
