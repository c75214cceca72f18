import { sameBytes, Tensor } from "@mlxts/core";

/** As `encoder.append` asks: kernels are chosen by how far tensors begin from multiples of so many bytes. */
const ALIGNMENT = 16;

let others = 0;

/**
 * What a value is but for the contents of its tensors, which are added to `tensors`, those of one memory once: values with
 * one description differ in nothing else.
 */
export function describe(value: unknown, tensors: Tensor[]): string {
  if (value instanceof Tensor) {
    const known = tensors.findIndex((each) => sameBytes(each, value));
    if (known < 0) tensors.push(value);
    return `${value.dtype}[${value.shape}]${known < 0 ? value.byteOffset % ALIGNMENT : `=${known}`}`;
  }
  if (value === null || typeof value !== "object")
    return typeof value === "string" ? JSON.stringify(value) : `${value as number}`;
  if (Array.isArray(value)) return `[${value.map((each) => describe(each, tensors)).join()}]`;
  const fields = Object.entries(value);
  // Of a map and the like nothing is seen here.
  if (fields.length === 0 && Object.getPrototypeOf(value) !== Object.prototype) return `other ${others++}`;
  return `{${fields.map(([name, field]) => `${name}:${describe(field, tensors)}`).join()}}`;
}
