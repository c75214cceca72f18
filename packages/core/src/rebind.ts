import type { Buffer } from "./buffer.ts";
import type { Dispatch } from "./dispatch.ts";
import { type ArgumentRangeError, wrongKind, wrongValue } from "./errors.ts";
import { type Access, writesTo } from "./kernel.ts";
import { overlaps, type Range } from "./ranges.ts";
import { isArray } from "./shape.ts";
import { Tensor } from "./tensor.ts";

const OP = "recording.rebind";
const REMEDY = "record anew with the new tensors, or with optimize: false";

type Replace = (tensor: Tensor) => Tensor;
type Dispatches = readonly Dispatch[];

/** By buffer, something for each view of it. */
class Views<T> {
  private readonly buffers = new Map<Buffer, Map<string, T>>();

  private key({ dtype, byteOffset, byteLength }: Tensor): string {
    return `${dtype} ${byteOffset} ${byteLength}`;
  }

  get(tensor: Tensor): T | undefined {
    return this.buffers.get(tensor.buffer)?.get(this.key(tensor));
  }

  /** The first value for a view counts. */
  add(tensor: Tensor, value: T): void {
    const views = this.buffers.get(tensor.buffer) ?? new Map<string, T>();
    if (!views.has(this.key(tensor))) views.set(this.key(tensor), value);
    this.buffers.set(tensor.buffer, views);
  }

  ofBuffer(tensor: Tensor): Iterable<T> {
    return this.buffers.get(tensor.buffer)?.values() ?? [];
  }
}

/** A tensor of a dispatch. */
interface Bound {
  readonly label: string;
  readonly tensor: Tensor;
  readonly writes: boolean;
}

function* boundBy(dispatches: Dispatches): Iterable<Bound> {
  for (const { kernel, op, buffers } of dispatches)
    for (const name of kernel.bufferNames) {
      const tensor = buffers[name];
      const writes = writesTo(kernel.buffers[name] as Access);
      if (tensor) yield { label: `\`${name}\` of ${op}`, tensor, writes };
    }
}

/** The views of some buffers. */
function viewsOf(dispatches: Dispatches, of: ReadonlySet<Buffer>): Views<Bound> {
  const views = new Views<Bound>();
  for (const bound of boundBy(dispatches)) if (of.has(bound.tensor.buffer)) views.add(bound.tensor, bound);
  return views;
}

/** Whether a dispatch binds the same view of the tensor's buffer. */
export const isBound = (tensor: Tensor, dispatches: Dispatches): boolean =>
  viewsOf(dispatches, new Set([tensor.buffer])).get(tensor) !== undefined;

/** What an encoder that optimizes has made a recording of. */
export interface Unoptimized {
  /** The dispatches in program order, with scratch as it was. */
  readonly order: Dispatches;
  /** Whether optimizing has left out or moved any. */
  readonly changed: boolean;
}

/** Tensors in place of those of a recording. */
export class Replacements {
  private readonly replacements = new Views<{ from: Tensor; to: Tensor; used: boolean }>();
  private readonly pairs: [from: Tensor, to: Tensor][];

  /** @throws TypeError or RangeError when the pairs are not [recorded, replacement] with equal dtype and byte length */
  constructor(pairs: unknown) {
    this.pairs = readPairs(pairs);
    for (const [from, to] of this.pairs) this.replacements.add(from, { from, to, used: false });
  }

  /**
   * What stands in place of a tensor: every recorded tensor that is the same view of the same buffer is replaced; of several
   * replacements for one view the first counts.
   */
  readonly replace: Replace = (tensor) => {
    const replacement = this.replacements.get(tensor);
    if (!replacement) return tensor;
    replacement.used = true;
    return replacement.to;
  };

  /** The dispatch with its tensors replaced. */
  readonly replaced = (dispatch: Dispatch): Dispatch => {
    const tensors = Object.entries(dispatch.buffers).map(([name, tensor]) => [name, tensor && this.replace(tensor)]);
    return { ...dispatch, buffers: Object.fromEntries(tensors) };
  };

  /** Refuses to replace tensors that `replace` was not asked for. */
  assertUsed(): void {
    for (const [from] of this.pairs) if (!this.replacements.get(from)?.used) throw notBound(nameOf(from));
  }

  /** Refuses to replace tensors of a recording that was optimized where that would not give what program order gives. */
  assertLike({ order, changed }: Unoptimized, dispatches: Dispatches): void {
    const buffers = new Set(this.pairs.map(([from]) => from.buffer));
    const [before, now] = [viewsOf(order, buffers), viewsOf(dispatches, buffers)];
    for (const [from] of this.pairs) assertKept(from, before, now);
    if (changed) assertSameOverlaps([...order, ...dispatches], this.replace);
  }
}

const nameOf = ({ dtype, shape, byteOffset }: Tensor): string =>
  `${dtype} [${shape.join(", ")}] at byte ${byteOffset}, which none binds`;

function notBound(what: string): ArgumentRangeError {
  return wrongValue(OP, "pairs", "name tensors that the recording's dispatches bind", what);
}

function assertKept(from: Tensor, before: Views<Bound>, now: Views<Bound>): void {
  const was = before.get(from);
  if (!was) throw notBound(nameOf(from));
  if (!now.get(from)) throw notBound(`${was.label}, which optimizing has left out or placed as scratch`);
  // The dispatches that fusion has made may bind other parts of the tensor: these would stay what they are.
  for (const [some, others] of [
    [before, now],
    [now, before],
  ] as const)
    for (const { label, tensor } of some.ofBuffer(from))
      if (overlaps(tensor.range, from.range) && !others.get(tensor))
        throw notBound(`${was.label}, of which optimizing has changed ${label}`);
}

/** A tensor of a dispatch: where it lies, and where it would lie. */
interface Use {
  readonly label: string;
  readonly writes: boolean;
  readonly before: Range;
  readonly after: Range;
}

/** The uses of tensors by dispatches, one for all that are alike. */
function usesOf(dispatches: Dispatches, replace: Replace): Use[] {
  const uses: Use[] = [];
  const byBegin = new Map<number, Use[]>();
  for (const { label, tensor, writes } of boundBy(dispatches)) {
    const [before, after] = [tensor.range, replace(tensor).range];
    const known = byBegin.get(before.begin);
    const isKnown = known?.some(
      (use) => use.writes === writes && use.before.end === before.end && use.after.begin === after.begin,
    );
    if (isKnown) continue;
    const use = { label, writes, before, after };
    if (known) known.push(use);
    else byBegin.set(before.begin, [use]);
    uses.push(use);
  }
  return uses;
}

/**
 * Refuses replacements after which a tensor that is written meets another one where it did not before, or two that are
 * written no longer meet: what optimizing has moved or left out was proven for the old places only.
 */
function assertSameOverlaps(dispatches: Dispatches, replace: Replace): void {
  const uses = usesOf(dispatches, replace);
  for (const a of uses) {
    const moved = a.after.begin - a.before.begin;
    if (moved === 0) continue;
    for (const b of uses) {
      if (!(a.writes || b.writes) || b.after.begin - b.before.begin === moved) continue;
      const [before, after] = [overlaps(a.before, b.before), overlaps(a.after, b.after)];
      if (after)
        throw wrongValue(
          OP,
          "pairs",
          "make no new overlap in a recording that was optimized",
          `${a.label} over ${b.label}`,
          REMEDY,
        );
      if (before && a.writes && b.writes)
        throw wrongValue(
          OP,
          "pairs",
          "part no outputs in a recording that was optimized",
          `${a.label} apart from ${b.label}`,
          REMEDY,
        );
    }
  }
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
