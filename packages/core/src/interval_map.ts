import type { Range } from "./ranges.ts";

interface Interval<V> {
  begin: number;
  end: number;
  value: V;
}

/** The position of an interval in the blocks, or the position to insert one at. */
interface Place {
  block: number;
  index: number;
}

/** A block with more intervals than this is split in two. */
const BLOCK = 128;

/**
 * A map from ranges of addresses to values. It holds disjoint half-open intervals in order of address; adjacent intervals
 * of equal value are merged. The sorted list is stored in blocks, so that an insertion moves few entries: a search takes
 * O(log n), an insertion or removal O(log n) and the size of a block.
 */
export class IntervalMap<V> {
  private blocks: Interval<V>[][] = [];
  private count = 0;

  /** How many intervals it holds. */
  get size(): number {
    return this.count;
  }

  /** The position of the first interval that ends after `address`; past the last one if there is none. */
  private find(address: number): Place {
    const { blocks } = this;
    let low = 0;
    let high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      const block = blocks[middle] as Interval<V>[];
      if ((block[block.length - 1] as Interval<V>).end > address) high = middle;
      else low = middle + 1;
    }
    const block = blocks[low] ?? [];
    let first = 0;
    let last = block.length;
    while (first < last) {
      const middle = (first + last) >> 1;
      if ((block[middle] as Interval<V>).end > address) last = middle;
      else first = middle + 1;
    }
    return { block: low, index: first };
  }

  private at({ block, index }: Place): Interval<V> | undefined {
    return this.blocks[block]?.[index];
  }

  private before({ block, index }: Place): Interval<V> | undefined {
    return index > 0 ? this.blocks[block]?.[index - 1] : this.blocks[block - 1]?.at(-1);
  }

  private insert({ block, index }: Place, interval: Interval<V>): void {
    this.count++;
    const entries = this.blocks[block];
    if (!entries) {
      this.blocks.push([interval]);
      return;
    }
    if (index === entries.length) entries.push(interval);
    else entries.splice(index, 0, interval);
    if (entries.length > BLOCK) this.blocks.splice(block + 1, 0, entries.splice(BLOCK / 2));
  }

  private remove({ block, index }: Place): void {
    this.count--;
    const entries = this.blocks[block] as Interval<V>[];
    entries.splice(index, 1);
    if (entries.length === 0) this.blocks.splice(block, 1);
  }

  /** The lowest interval that overlaps the range. */
  first({ begin, end }: Range): Readonly<Interval<V>> | undefined {
    const found = this.at(this.find(begin));
    return found && found.begin < end ? found : undefined;
  }

  /** The intervals that overlap the range, in order of address. */
  *overlapping({ begin, end }: Range): Iterable<Readonly<Interval<V>>> {
    let { block, index } = this.find(begin);
    for (; block < this.blocks.length; block++, index = 0)
      for (const interval of (this.blocks[block] as Interval<V>[]).slice(index)) {
        if (interval.begin >= end) return;
        yield interval;
      }
  }

  /** Gives each part of a range a new value, made of the one that it has; undefined leaves a part as it is. */
  update(range: Range, next: (value: V | undefined) => V | undefined): void {
    const found = this.at(this.find(range.begin));
    const before = found && found.begin < range.end ? found : undefined;
    if (!before || (before.begin === range.begin && before.end === range.end)) {
      const value = next(before?.value);
      if (value !== undefined && value !== before?.value) this.set(range, value);
      return;
    }
    const parts: Interval<V>[] = [];
    for (const { begin, end, value } of this.overlapping(range)) parts.push({ begin, end, value });
    let at = range.begin;
    const visit = (begin: number, end: number, before: V | undefined) => {
      const value = begin < end ? next(before) : undefined;
      if (value !== undefined && value !== before) this.set({ begin, end }, value);
    };
    for (const { begin, end, value } of parts) {
      visit(at, begin, undefined);
      visit(Math.max(begin, range.begin), Math.min(end, range.end), value);
      at = end;
    }
    visit(at, range.end, undefined);
  }

  /** Gives the whole range a value; values that it had are replaced. */
  set(range: Range, value: V): void {
    const { begin, end } = range;
    let place = this.find(begin);
    const covering = this.at(place);
    if (covering && covering.begin < end) {
      if (covering.value === value && covering.begin <= begin && covering.end >= end) return;
      this.delete(range);
      place = this.find(begin);
    }
    const left = this.before(place);
    const right = this.at(place);
    const joinsLeft = left !== undefined && left.end === begin && left.value === value;
    const joinsRight = right !== undefined && right.begin === end && right.value === value;
    if (joinsLeft) {
      left.end = joinsRight ? right.end : end;
      if (joinsRight) this.remove(place);
    } else if (joinsRight) right.begin = begin;
    else this.insert(place, { begin, end, value });
  }

  /** Removes the values of the range. */
  delete({ begin, end }: Range): void {
    for (;;) {
      const place = this.find(begin);
      const interval = this.at(place);
      if (!interval || interval.begin >= end) return;
      if (interval.begin < begin) {
        if (interval.end > end) {
          const { block, index } = place;
          this.insert({ block, index: index + 1 }, { ...interval, begin: end });
        }
        interval.end = begin;
      } else if (interval.end > end) {
        interval.begin = end;
        return;
      } else this.remove(place);
    }
  }

  /** Removes the intervals whose value `keep` refuses. */
  filter(keep: (value: V) => boolean): void {
    this.blocks = this.blocks
      .map((entries) => entries.filter(({ value }) => keep(value)))
      .filter((entries) => entries.length > 0);
    this.count = this.blocks.reduce((sum, entries) => sum + entries.length, 0);
  }

  clear(): void {
    // The first block is emptied and stays, so that a map that is cleared often takes no new memory.
    if (this.blocks.length > 1) this.blocks.splice(1);
    const first = this.blocks[0] ?? [];
    while (first.length > 0) first.pop();
    this.count = 0;
  }
}
