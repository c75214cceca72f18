// The calls of a recording while rules of fusion are applied, and who reads and writes which memory.
import type { GraphNode, OpCall } from "./graph.ts";
import { overlaps, type Range } from "./ranges.ts";

/** The dispatches of one call, side by side. */
export interface Unit {
  readonly call: OpCall | undefined;
  readonly nodes: readonly GraphNode[];
}

type Access = "reads" | "writes";

/** Addresses that no other stretch overlaps, and the places of the units that read and write in it, in order. */
interface Stretch extends Range {
  reads: number[];
  writes: number[];
}

const NONE: Unit = { call: undefined, nodes: [] };

/** How many numbers of a sorted list are less than a value. */
function countBelow(list: readonly number[], value: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((list[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function insert(places: number[], place: number): void {
  const last = places[places.length - 1];
  if (last === undefined || last < place) {
    places.push(place);
    return;
  }
  const at = countBelow(places, place);
  if (places[at] !== place) places.splice(at, 0, place);
}

const merged = (lists: readonly (readonly number[])[]): number[] => [...new Set(lists.flat())].sort((a, b) => a - b);

export const nameOf = ({ call, nodes }: Unit): string => call?.op ?? nodes[0]?.accesses.label ?? "";

/** Whether a unit acts on something that its tensors do not tell: a dispatch of it writes nothing. */
export function actsOutside({ nodes }: Unit): boolean {
  for (let i = 0; i < nodes.length; i++) if ((nodes[i] as GraphNode).accesses.writes.length === 0) return true;
  return false;
}

export class Units {
  private readonly all: Unit[] = [];
  /** For each place the number of units that have stood there. */
  private readonly counts: number[] = [];
  /** In order of addresses. A place stays in its lists when its unit has become part of another. */
  private readonly stretches: Stretch[] = [];
  /** Places of units that act outside their tensors. */
  private readonly outside: number[] = [];

  constructor(nodes: readonly GraphNode[]) {
    const units: { call: OpCall | undefined; nodes: GraphNode[] }[] = [];
    for (const node of nodes) {
      const last = units.at(-1);
      if (node.call && last?.call === node.call) last.nodes.push(node);
      else units.push({ call: node.call, nodes: [node] });
    }
    for (const [place, unit] of units.entries()) this.put(place, unit);
  }

  get length(): number {
    return this.all.length;
  }

  get nodes(): GraphNode[] {
    return this.all.flatMap(({ nodes }) => nodes);
  }

  at(place: number): Unit {
    return this.all[place] as Unit;
  }

  /** How many units have stood in a place. */
  changes(place: number): number {
    return this.counts[place] ?? 0;
  }

  /** Puts a unit in the place of one of several that it stands for. */
  replace(places: Iterable<number>, place: number, unit: Unit): void {
    for (const each of places) this.all[each] = NONE;
    this.put(place, unit);
  }

  private put(place: number, unit: Unit): void {
    this.all[place] = unit;
    this.counts[place] = this.changes(place) + 1;
    if (actsOutside(unit)) insert(this.outside, place);
    for (const { accesses } of unit.nodes) {
      for (const range of accesses.reads) if (range.begin < range.end) insert(this.stretchOf(range).reads, place);
      for (const range of accesses.writes) if (range.begin < range.end) insert(this.stretchOf(range).writes, place);
    }
  }

  /** The number of the first stretch that ends after an address. */
  private endingAfter(address: number): number {
    let [low, high] = [0, this.stretches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.stretches[middle] as Stretch).end <= address) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The stretches that a range overlaps, as a part of the list. */
  private span({ begin, end }: Range): [first: number, end: number] {
    const first = this.endingAfter(begin);
    let last = first;
    while (last < this.stretches.length && (this.stretches[last] as Stretch).begin < end) last++;
    return [first, last];
  }

  /** The stretch that holds a range; those that the range joins become one. */
  private stretchOf(range: Range): Stretch {
    const at = this.endingAfter(range.begin);
    const known = this.stretches[at];
    if (known && known.begin <= range.begin && range.end <= known.end) return known;
    if (!known || known.begin >= range.end) {
      const stretch: Stretch = { begin: range.begin, end: range.end, reads: [], writes: [] };
      this.stretches.splice(at, 0, stretch);
      return stretch;
    }
    const [first, end] = this.span(range);
    const parts = this.stretches.slice(first, end);
    const stretch: Stretch = {
      begin: Math.min(range.begin, ...parts.map(({ begin }) => begin)),
      end: Math.max(range.end, ...parts.map((part) => part.end)),
      reads: merged(parts.map(({ reads }) => reads)),
      writes: merged(parts.map(({ writes }) => writes)),
    };
    this.stretches.splice(first, end - first, stretch);
    return stretch;
  }

  /** Places, in order, where something of the same stretch is read or written. */
  private places(access: Access, range: Range): readonly number[] {
    const [first, end] = this.span(range);
    if (end - first === 1) return (this.stretches[first] as Stretch)[access];
    return merged(this.stretches.slice(first, end).map((stretch) => stretch[access]));
  }

  private does(place: number, access: Access, range: Range): boolean {
    for (const { accesses } of this.at(place).nodes)
      for (const each of accesses[access]) if (overlaps(each, range)) return true;
    return false;
  }

  /** Whether the unit of a place is a call of an op; undefined: of any, or none. */
  private isOf(place: number, op: string | undefined): boolean {
    return op === undefined || this.at(place).call?.op === op;
  }

  /** Places after `low` and before `high` that read or write memory, from the first to the last; with `op` calls of it. */
  *between(access: Access, range: Range, low: number, high: number, op?: string): Iterable<number> {
    const places = this.places(access, range);
    for (let i = countBelow(places, low + 1); i < places.length; i++) {
      const place = places[i] as number;
      if (place >= high) return;
      if (this.isOf(place, op) && this.does(place, access, range)) yield place;
    }
  }

  /** Places before `high` that read or write memory, from the last to the first; with `op` calls of it. */
  *before(access: Access, range: Range, high: number, op?: string): Iterable<number> {
    const places = this.places(access, range);
    for (let i = countBelow(places, high) - 1; i >= 0; i--) {
      const place = places[i] as number;
      if (this.isOf(place, op) && this.does(place, access, range)) yield place;
    }
  }

  /** The last place before `high` that writes memory. */
  lastWriter(range: Range, high: number): number | undefined {
    const places = this.places("writes", range);
    for (let i = countBelow(places, high) - 1; i >= 0; i--)
      if (this.does(places[i] as number, "writes", range)) return places[i];
    return undefined;
  }

  /** The first place from `low` on that writes memory. */
  firstWriter(range: Range, low: number): number | undefined {
    const places = this.places("writes", range);
    for (let i = countBelow(places, low); i < places.length; i++)
      if (this.does(places[i] as number, "writes", range)) return places[i];
    return undefined;
  }

  /** Places after `low` and before `high` that act outside their tensors. */
  private *outsideBetween(low: number, high: number): Iterable<number> {
    for (let i = countBelow(this.outside, low + 1); i < this.outside.length; i++) {
      const place = this.outside[i] as number;
      if (place >= high) return;
      if (actsOutside(this.at(place))) yield place;
    }
  }

  /** Why a unit cannot move to another place: whom it would pass, but for those that move too. */
  whyFixed(place: number, target: number, moving: ReadonlySet<number>): string | undefined {
    const { nodes } = this.at(place);
    const [low, high] = [Math.min(place, target), Math.max(place, target)];
    if (high - low < 2) return undefined;
    const find = (places: Iterable<number>) => {
      for (const each of places) if (!moving.has(each)) return nameOf(this.at(each));
      return undefined;
    };
    const silent = find(this.outsideBetween(low, high));
    if (silent !== undefined) return `${silent} comes between and writes nothing`;
    for (const { accesses } of nodes) {
      const passed =
        first(accesses.writes, (range) => find(this.between("reads", range, low, high))) ??
        first([...accesses.reads, ...accesses.writes], (range) => find(this.between("writes", range, low, high)));
      if (passed !== undefined) return `${passed} comes between and uses memory of ${nameOf(this.at(place))}`;
    }
    return undefined;
  }
}

/** The first result that is not undefined. */
export function first<T, R>(list: Iterable<T>, test: (element: T) => R | undefined): R | undefined {
  for (const each of list) {
    const result = test(each);
    if (result !== undefined) return result;
  }
  return undefined;
}
