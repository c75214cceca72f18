import type { Work } from "../work.ts";
import type { Merges } from "./merges.ts";

/** Room for positions beside a rank in one number of 53 bits. */
const POSITIONS = 2 ** 28;

/**
 * Merges neighboring symbols, lowest rank first, of equal ranks the leftmost. A planned merge still counts if the pair that
 * is at its place by then makes the same token, as in `tokenizers`. Time is n·log n.
 */
export class MergeQueue {
  private symbols = new Int32Array(64);
  private next = new Int32Array(64);
  private previous = new Int32Array(64);
  private length = 0;
  /** A heap of rank · POSITIONS + position. */
  private heap = new Float64Array(192);
  private heapLength = 0;
  private readonly merges: Merges;

  constructor(merges: Merges) {
    this.merges = merges;
  }

  clear(): void {
    this.length = 0;
    this.heapLength = 0;
  }

  push(symbol: number): void {
    if (this.length === this.symbols.length) this.grow();
    this.symbols[this.length++] = symbol;
  }

  /** Merges all that was pushed and appends the ids. */
  run(ids: number[], work: Work): void {
    for (const _ of this.runInSlices(ids, work));
  }

  /** The same with pauses, in which the queue must be left alone. */
  *runInSlices(ids: number[], work: Work): Generator<void> {
    const { symbols, next, previous, merges, length } = this;
    for (let at = 0; at < length; at++) {
      next[at] = at + 1 < length ? at + 1 : -1;
      previous[at] = at - 1;
    }
    for (let at = 0; at + 1 < length; at++) this.plan(at, at + 1);
    let steps = length;
    while (this.heapLength > 0) {
      const key = this.pop();
      if (++steps === 4096) {
        work.spend(4 * steps);
        steps = 0;
        yield;
      }
      const rank = Math.floor(key / POSITIONS);
      const at = key - rank * POSITIONS;
      const right = next[at] as number;
      if (symbols[at] === -1 || right === -1) continue;
      const current = merges.rankOf(symbols[at] as number, symbols[right] as number);
      const merged = merges.mergedAt(rank);
      if (current === -1 || merges.mergedAt(current) !== merged) continue;
      symbols[at] = merged;
      symbols[right] = -1;
      const after = next[right] as number;
      next[at] = after;
      if (after !== -1) {
        previous[after] = at;
        this.plan(at, after);
      }
      const before = previous[at] as number;
      if (before !== -1) this.plan(before, at);
    }
    work.spend(4 * steps);
    for (let at = 0; at !== -1 && at < length; at = next[at] as number) ids.push(symbols[at] as number);
  }

  private plan(left: number, right: number): void {
    const rank = this.merges.rankOf(this.symbols[left] as number, this.symbols[right] as number);
    if (rank === -1) return;
    const key = rank * POSITIONS + left;
    if (this.heapLength === this.heap.length) {
      const wider = new Float64Array(2 * this.heap.length);
      wider.set(this.heap);
      this.heap = wider;
    }
    const { heap } = this;
    let at = this.heapLength++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const value = heap[parent] as number;
      if (value <= key) break;
      heap[at] = value;
      at = parent;
    }
    heap[at] = key;
  }

  private pop(): number {
    const { heap } = this;
    const top = heap[0] as number;
    const last = heap[--this.heapLength] as number;
    const length = this.heapLength;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      if (child + 1 < length && (heap[child + 1] as number) < (heap[child] as number)) child++;
      if ((heap[child] as number) >= last) break;
      heap[at] = heap[child] as number;
      at = child;
    }
    heap[at] = last;
    return top;
  }

  private grow(): void {
    const size = 2 * this.symbols.length;
    const symbols = new Int32Array(size);
    symbols.set(this.symbols);
    this.symbols = symbols;
    this.next = new Int32Array(size);
    this.previous = new Int32Array(size);
  }
}
