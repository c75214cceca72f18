import { checkDtype, DTYPES, type Dtype } from "./dtype.ts";
import { wrongKind, wrongValue } from "./errors.ts";
import { namesOf } from "./options.ts";
import { isArray } from "./shape.ts";

/** Where the scratch arrays of a dispatch lie. */
export interface ScratchLayout {
  readonly bytes: number;
  /** Of each array, in the order of the declaration. */
  readonly offsets: readonly number[];
  /** Where each array ends, if bytes behind it are guarded; else none. */
  readonly guards: readonly number[];
}

/** Bytes behind each guarded array; packages/core/native/device.h has the same number. */
export const GUARD_BYTES = 64;
/** The code of a fault whose first word is the array that was overrun; so has packages/core/native/fault.h. */
export const SCRATCH_OVERRUN = 0xffffffff;
const NO_SCRATCH: ScratchLayout = Object.freeze({ bytes: 0, offsets: [], guards: [] });

/**
 * Elements from one row of a tile to the next in a GPU's threadgroup memory, `tile_stride` of
 * packages/core/native/metal_tile.h: 16 bytes more than its columns. The tile is a scratch array [rows, stride].
 */
export function tileStride(dtype: Dtype, columns: number): number {
  checkDtype("tileStride", dtype);
  if (!Number.isInteger(columns) || columns < 1)
    throw wrongValue("tileStride", "columns", "be an integer ≥ 1", columns);
  return columns + 16 / DTYPES[dtype].bytesPerElement;
}

function arrayBytes(op: string, name: string, dtype: Dtype, shape: unknown): number {
  const argument = `scratch.${name}`;
  if (!isArray(shape)) throw wrongKind(op, argument, "be a shape", shape);
  let { bytesPerElement: bytes } = DTYPES[dtype];
  for (let i = 0; i < shape.length; i++) {
    const axis: unknown = shape[i];
    if (!Number.isInteger(axis) || (axis as number) < 0)
      throw wrongValue(op, argument, "have dimensions that are integers ≥ 0", shape);
    bytes *= axis as number;
  }
  return bytes;
}

/**
 * Places the arrays one behind the other, each aligned to `alignment` bytes, with guarded bytes between them where
 * `guarded`.
 * @throws TypeError or RangeError of the op when a launch rule's shapes are not those of the declared arrays
 */
export function layScratchOut(
  op: string,
  arrays: Readonly<Record<string, Dtype>>,
  shapes: unknown,
  { alignment, guarded }: { alignment: number; guarded: boolean },
): ScratchLayout {
  const names = Object.keys(arrays);
  const given = shapes === undefined ? [] : namesOf(op, "scratch", shapes);
  for (const name of given)
    if (!Object.hasOwn(arrays, name))
      throw wrongKind(op, `scratch.${name}`, "be declared by the kernel", "an unknown array");
  if (names.length === 0) return NO_SCRATCH;
  const offsets: number[] = [];
  const guards: number[] = [];
  let end = 0;
  for (const name of names) {
    const at = Math.ceil(end / alignment) * alignment;
    offsets.push(at);
    end = at + arrayBytes(op, name, arrays[name] as Dtype, (shapes as Record<string, unknown> | undefined)?.[name]);
    if (guarded) {
      guards.push(end);
      end += GUARD_BYTES;
    }
  }
  return { bytes: end, offsets, guards };
}

/** What is wrong when bytes behind a kernel's scratch have changed, or behind array number `index` of it. */
export function overrunText(arrays: Readonly<Record<string, Dtype>>, index: number): string {
  const name = Object.keys(arrays)[index];
  return name === undefined
    ? "the kernel wrote past its scratch"
    : `the kernel wrote past its scratch array \`${name}\``;
}
