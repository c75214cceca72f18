// Dispatches in an order that needs fewer barriers.
import type { GraphNode } from "./graph.ts";
import { IntervalMap } from "./interval_map.ts";
import type { Accesses, Range } from "./ranges.ts";

/** A dispatch moves before fewer others than this. */
const LOOK_AHEAD = 64;
/** When so many places of the list of what is left are used up, it is cut. */
const LEFT_OVER = 4096;

/** Dispatches that read a range, the latest first. */
interface Readers {
  readonly node: number;
  readonly earlier: Readers | undefined;
}

/** What was done to a range: who wrote it last, and who has read it since. */
interface History {
  readonly writer: number | undefined;
  readonly readers: Readers | undefined;
}

const UNTOUCHED: History = { writer: undefined, readers: undefined };

/** Finds, for one dispatch after another, the earlier ones that must stay before it. */
class Dependencies {
  private readonly histories = new IntervalMap<History>();

  /** The earlier dispatches that conflict with this one, save those that must stay before one of them. */
  add(node: number, { reads, writes }: Accesses): Set<number> {
    const before = new Set<number>();
    for (const range of reads)
      this.change(range, (history) => {
        if (history.writer !== undefined && history.writer !== node) before.add(history.writer);
        if (history.readers?.node === node) return history;
        return { writer: history.writer, readers: { node, earlier: history.readers } };
      });
    for (const range of writes) {
      this.change(range, ({ writer, readers }) => {
        if (writer !== undefined && writer !== node) before.add(writer);
        for (let each = readers; each; each = each.earlier) if (each.node !== node) before.add(each.node);
        return undefined;
      });
      this.histories.set(range, { writer: node, readers: undefined });
    }
    return before;
  }

  /** Gives each part of a range a new history; without one the part is left as it is. */
  private change(range: Range, next: (history: History) => History | undefined): void {
    const parts = [...this.histories.overlapping(range)].map(({ begin, end, value }) => ({ begin, end, value }));
    let at = range.begin;
    const visit = (begin: number, end: number, history: History) => {
      const changed = begin < end ? next(history) : undefined;
      if (changed && changed !== history) this.histories.set({ begin, end }, changed);
    };
    for (const { begin, end, value } of parts) {
      visit(at, begin, UNTOUCHED);
      visit(Math.max(begin, range.begin), Math.min(end, range.end), value);
      at = end;
    }
    visit(at, range.end, UNTOUCHED);
  }
}

/**
 * Whether a dispatch does something that its buffers do not tell: one that writes none has no other use. It is not moved,
 * and nothing is moved past it.
 */
const hasUnknownEffect = ({ accesses }: GraphNode): boolean => accesses.writes.length === 0;

/**
 * The same dispatches in an order that needs fewer barriers, and how many moved before others. Stage by stage, of those that
 * are left, each that need not follow another one of the stage or one that is left joins it. So each stays behind what it
 * conflicts with and came before, and moves past fewer than 64 others.
 */
export function reorder(nodes: readonly GraphNode[]): { order: GraphNode[]; moved: number } {
  const dependencies = new Dependencies();
  const before = nodes.map(({ accesses }, at) => dependencies.add(at, accesses));
  const stageOf = new Array<number>(nodes.length).fill(-1);
  const order: GraphNode[] = [];
  let left = nodes.map((_, at) => at);
  let moved = 0;
  const fits = (at: number, stage: number) => {
    for (const each of before[at] as Set<number>) {
      const its = stageOf[each] as number;
      if (its < 0 || its >= stage) return false;
    }
    return true;
  };
  for (let stage = 0, first = 0; first < left.length; stage++) {
    const skipped: number[] = [];
    let at = first;
    for (; at < left.length && skipped.length < LOOK_AHEAD; at++) {
      const index = left[at] as number;
      const node = nodes[index] as GraphNode;
      const fixed = hasUnknownEffect(node);
      if (fits(index, stage) && !(fixed && skipped.length > 0)) {
        stageOf[index] = stage;
        order.push(node);
        if (skipped.length > 0) moved++;
      } else {
        skipped.push(index);
        if (fixed) {
          at++;
          break;
        }
      }
    }
    // Those that were skipped stand before the ones that were not looked at.
    first = at - skipped.length;
    for (const [i, index] of skipped.entries()) left[first + i] = index;
    if (first > LEFT_OVER) {
      left = left.slice(first);
      first = 0;
    }
  }
  return { order, moved };
}
