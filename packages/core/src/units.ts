// The dispatches of one call side by side, and where a recording uses memory: what fusion looks at.
import { writesTo } from "./bindings.ts";
import type { Buffer } from "./buffer.ts";
import type { GraphNode, OpCall } from "./graph.ts";
import type { Access } from "./kernel.ts";
import { type Accesses, overlaps, type Range } from "./ranges.ts";

/** Dispatches of one call, side by side; or one dispatch of a program's own. */
export interface Unit {
  readonly call: OpCall | undefined;
  readonly nodes: readonly GraphNode[];
}

export const NO_UNIT: Unit = { call: undefined, nodes: [] };

export const nameOf = ({ call, nodes }: Unit): string => call?.op ?? nodes[0]?.accesses.label ?? "";

export function unitsOf(nodes: readonly GraphNode[]): Unit[] {
  const units: { call: OpCall | undefined; nodes: GraphNode[] }[] = [];
  for (const node of nodes) {
    const last = units.at(-1);
    if (node.call && last?.call === node.call) last.nodes.push(node);
    else units.push({ call: node.call, nodes: [node] });
  }
  return units;
}

const touches = (ranges: readonly Range[], range: Range): boolean => ranges.some((each) => overlaps(each, range));

const some = ({ nodes }: Unit, test: (accesses: Accesses) => boolean): boolean =>
  nodes.some(({ accesses }) => test(accesses));

export const reads = (unit: Unit, range: Range): boolean => some(unit, ({ reads }) => touches(reads, range));
export const writes = (unit: Unit, range: Range): boolean => some(unit, ({ writes }) => touches(writes, range));

/** Whether it does something that its buffers do not tell, so that it does not move, and nothing moves past it. */
export const hasUnknownEffect = (unit: Unit): boolean => some(unit, ({ writes }) => writes.length === 0);

/** Whether an earlier unit writes what a later one uses. */
export const feeds = (earlier: Unit, later: Unit): boolean =>
  some(earlier, ({ writes }) =>
    some(later, (others) => writes.some((range) => touches(others.reads, range) || touches(others.writes, range))),
  );

/** Whether two units must stay in their order. */
export const conflict = (a: Unit, b: Unit): boolean => feeds(a, b) || feeds(b, a);

/** The buffers of one stretch of memory, and the places of the units that use and that write it, in order. */
interface Uses {
  readonly using: number[];
  readonly writing: number[];
}

function insert(places: number[], place: number): void {
  let low = places.length;
  while (low > 0 && (places[low - 1] as number) > place) low--;
  if (places[low - 1] !== place) places.splice(low, 0, place);
}

/** Of all places in the list, those before `place`, the latest first. */
function* before(places: readonly number[], place: number): Iterable<number> {
  let low = 0;
  let high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((places[middle] as number) < place) low = middle + 1;
    else high = middle;
  }
  while (low > 0) yield places[--low] as number;
}

/** Where units use memory. Buffers over the same memory count as one. Places whose unit is used up stay in the lists. */
export class UnitUses {
  private readonly uses = new Map<Buffer, Uses>();

  constructor(units: readonly Unit[]) {
    const buffers = new Set<Buffer>();
    for (const { nodes } of units)
      for (const { dispatch } of nodes)
        for (const tensor of Object.values(dispatch.buffers)) if (tensor) buffers.add(tensor.buffer);
    let shared: Uses = { using: [], writing: [] };
    let end = Number.NEGATIVE_INFINITY;
    for (const buffer of [...buffers].sort((a, b) => a.address - b.address)) {
      if (buffer.address >= end) shared = { using: [], writing: [] };
      this.uses.set(buffer, shared);
      end = Math.max(end, buffer.address + buffer.byteLength);
    }
    for (const [place, unit] of units.entries()) this.add(place, unit);
  }

  /** Notes a unit. Buffers that none before it used are scratch of its own. */
  add(place: number, { nodes }: Unit): void {
    for (const { dispatch } of nodes)
      for (const [name, tensor] of Object.entries(dispatch.buffers)) {
        if (!tensor) continue;
        let uses = this.uses.get(tensor.buffer);
        if (!uses) {
          uses = { using: [], writing: [] };
          this.uses.set(tensor.buffer, uses);
        }
        insert(uses.using, place);
        if (writesTo(dispatch.kernel.buffers[name] as Access)) insert(uses.writing, place);
      }
  }

  /** Places before `place` whose units may write the memory of a buffer, the latest first. */
  writersBefore(buffer: Buffer, place: number): Iterable<number> {
    return before(this.uses.get(buffer)?.writing ?? [], place);
  }

  /** The same for units that may read or write it. */
  usersBefore(buffer: Buffer, place: number): Iterable<number> {
    return before(this.uses.get(buffer)?.using ?? [], place);
  }

  usersOf(buffer: Buffer): readonly number[] {
    return this.uses.get(buffer)?.using ?? [];
  }
}
