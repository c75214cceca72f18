import { IntervalMap } from "./interval_map.ts";
import { type Accesses, overlaps, type Range } from "./ranges.ts";

/** Which uses of memory are asked for: writes, or reads and writes. */
export type Use = "written" | "used";

/** A command list is searched linearly this many times; after that its ranges are sorted once, and searched faster. */
const LINEAR_SEARCHES = 8;
/** Up to this many lists in flight are searched one by one; more are sorted into one map. */
const UNSORTED_LISTS = 16;

/** The memory that a command list reads and writes. It is kept with the list, since a recording is replayed many times. */
export class Footprint {
  private searches = 0;
  private sorted: Record<Use, IntervalMap<true>> | undefined;
  readonly accesses: readonly Accesses[];

  constructor(accesses: readonly Accesses[]) {
    this.accesses = accesses;
  }

  touches(range: Range, use: Use): boolean {
    if (++this.searches > LINEAR_SEARCHES) {
      this.sorted ??= this.sort();
      return this.sorted[use].first(range) !== undefined;
    }
    for (const { reads, writes } of this.accesses) {
      for (const other of writes) if (overlaps(other, range)) return true;
      if (use === "used") for (const other of reads) if (overlaps(other, range)) return true;
    }
    return false;
  }

  private sort(): Record<Use, IntervalMap<true>> {
    const maps = { written: new IntervalMap<true>(), used: new IntervalMap<true>() };
    for (const { reads, writes } of this.accesses) {
      for (const range of writes) maps.written.set(range, true);
      for (const range of [...reads, ...writes]) maps.used.set(range, true);
    }
    return maps;
  }
}

/**
 * The memory that submissions in flight use. Submissions end in the order of their ids, so only the latest one that uses
 * an address counts: once it has ended, the address is idle.
 */
export class MemoryUses {
  /** The latest submission that uses each address. */
  private readonly sorted: Record<Use, IntervalMap<number>> = { written: new IntervalMap(), used: new IntervalMap() };
  /** Lists in flight that are not in `sorted` yet, each with its latest submission, in the order of these. */
  private readonly unsorted = new Map<Footprint, number>();
  private lastEnded = 0;
  /** When there are more intervals than this, those of ended submissions are removed. */
  private limit = 1024;

  /** Number of intervals. */
  get size(): number {
    return this.sorted.written.size + this.sorted.used.size;
  }

  begin(id: number, footprint: Footprint): void {
    this.unsorted.delete(footprint);
    this.unsorted.set(footprint, id);
  }

  end(id: number, footprint: Footprint): void {
    this.lastEnded = id;
    if (this.unsorted.get(footprint) === id) this.unsorted.delete(footprint);
  }

  /** To be called when nothing is in flight. */
  clear(): void {
    // Most often it is empty already; clearing it makes new memory.
    if (this.unsorted.size > 0) this.unsorted.clear();
    this.sorted.written.clear();
    this.sorted.used.clear();
  }

  /** The latest submission in flight that uses memory of the range in this way. */
  last(range: Range, use: Use): number | undefined {
    if (this.unsorted.size > UNSORTED_LISTS) this.sort();
    let last = this.lastEnded;
    for (const { value } of this.sorted[use].overlapping(range)) last = Math.max(last, value);
    for (const [footprint, id] of this.unsorted) if (id > last && footprint.touches(range, use)) last = id;
    return last > this.lastEnded ? last : undefined;
  }

  private sort(): void {
    const { written, used } = this.sorted;
    for (const [{ accesses }, id] of this.unsorted)
      for (const { reads, writes } of accesses) {
        for (const range of writes) written.set(range, id);
        for (const range of [...reads, ...writes]) used.set(range, id);
      }
    this.unsorted.clear();
    if (this.size <= this.limit) return;
    for (const map of [written, used]) map.filter((id) => id > this.lastEnded);
    this.limit = Math.max(1024, 2 * this.size);
  }
}
