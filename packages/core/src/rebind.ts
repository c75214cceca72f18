import type { Buffer } from "./buffer.ts";
import { wrongKind, wrongValue } from "./errors.ts";
import { isArray } from "./shape.ts";
import { Tensor } from "./tensor.ts";

const OP = "recording.rebind";

/**
 * A function that gives each tensor its replacement. Every recorded tensor that is the same view of the same buffer is
 * replaced; of several replacements for one view the first counts.
 * @throws TypeError or RangeError when the pairs are not [recorded, replacement] with equal dtype and byte length
 */
export function replacementsOf(pairs: unknown): (tensor: Tensor) => Tensor {
  const replacements = new Map<Buffer, Map<string, Tensor>>();
  const viewOf = ({ dtype, byteOffset, byteLength }: Tensor) => `${dtype} ${byteOffset} ${byteLength}`;
  for (const [from, to] of readPairs(pairs)) {
    const views = replacements.get(from.buffer) ?? new Map<string, Tensor>();
    if (!views.has(viewOf(from))) views.set(viewOf(from), to);
    replacements.set(from.buffer, views);
  }
  return (tensor) => replacements.get(tensor.buffer)?.get(viewOf(tensor)) ?? tensor;
}

/** A copy of the pairs, checked. */
function readPairs(pairs: unknown): [from: Tensor, to: Tensor][] {
  const fail = (value: unknown): never => {
    throw wrongKind(OP, "pairs", "be pairs of tensors", value);
  };
  let list: unknown[] = [];
  try {
    list = [...(pairs as Iterable<unknown>)];
  } catch {
    fail(pairs);
  }
  const copies = list.map((pair): [Tensor, Tensor] => {
    if (!isArray(pair)) return fail(pair);
    const [from, to] = pair;
    if (!(from instanceof Tensor)) return fail(from);
    if (!(to instanceof Tensor)) return fail(to);
    return [from, to];
  });
  for (const [from, to] of copies)
    if (from.dtype !== to.dtype || from.byteLength !== to.byteLength) {
      const rule = `keep dtype and bytes (${from.dtype}, ${from.byteLength})`;
      throw wrongValue(OP, "pairs", rule, `${to.dtype}, ${to.byteLength}`);
    }
  return copies;
}
