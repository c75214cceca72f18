// Dispatches in an order that needs fewer barriers.
import type { GraphNode } from "./graph.ts";
import { IntervalMap } from "./interval_map.ts";

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

/** Who must stay before whom: each dispatch has a list of those that wait for it. */
class Dependencies {
  /** For each dispatch: on how many others it waits. An entry for each pair, some repeatedly. */
  readonly waiting: Int32Array;
  /** The first entry of the list of each dispatch; 0 for none. */
  private readonly heads: Int32Array;
  /** Entries: who waits, and the next entry of the list. Entry 0 stands for none. */
  private readonly waits: number[] = [0];
  private readonly next: number[] = [0];
  private readonly histories = new IntervalMap<History>();
  private node = 0;

  constructor(nodes: readonly GraphNode[]) {
    this.waiting = new Int32Array(nodes.length);
    this.heads = new Int32Array(nodes.length);
    for (; this.node < nodes.length; this.node++) {
      const { reads, writes } = (nodes[this.node] as GraphNode).accesses;
      for (const range of reads) this.histories.update(range, this.read);
      const history: History = { writer: this.node, readers: undefined };
      const write = (before: History | undefined) => this.written(before, history);
      for (const range of writes) this.histories.update(range, write);
    }
  }

  private readonly read = (before: History | undefined): History => {
    const { node } = this;
    if (before?.writer !== undefined) this.add(before.writer);
    if (before?.readers?.node === node) return before;
    return { writer: before?.writer, readers: { node, earlier: before?.readers } };
  };

  private written(before: History | undefined, history: History): History {
    if (before?.writer !== undefined) this.add(before.writer);
    for (let each = before?.readers; each; each = each.earlier) this.add(each.node);
    return history;
  }

  /** The present dispatch must stay behind an earlier one. */
  private add(earlier: number): void {
    if (earlier === this.node) return;
    this.waiting[this.node] = (this.waiting[this.node] as number) + 1;
    this.next.push(this.heads[earlier] as number);
    this.heads[earlier] = this.waits.push(this.node) - 1;
  }

  /** A dispatch has got its place: calls `free` with each that waited for it. */
  placed(node: number, free: (waiting: number) => void): void {
    for (let at = this.heads[node] as number; at > 0; at = this.next[at] as number) {
      const each = this.waits[at] as number;
      this.waiting[each] = (this.waiting[each] as number) - 1;
      free(each);
    }
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
  const dependencies = new Dependencies(nodes);
  const { waiting } = dependencies;
  /** The first stage that each dispatch can join. */
  const earliest = new Int32Array(nodes.length);
  const order: GraphNode[] = [];
  let left = nodes.map((_, at) => at);
  let moved = 0;
  const delay = (each: number) => {
    earliest[each] = stage + 1;
  };
  let stage = 0;
  const skippedOnes = new Int32Array(LOOK_AHEAD);
  for (let first = 0; first < left.length; stage++) {
    let skipped = 0;
    let at = first;
    for (; at < left.length && skipped < LOOK_AHEAD; at++) {
      const index = left[at] as number;
      const fits = waiting[index] === 0 && (earliest[index] as number) <= stage;
      const fixed = hasUnknownEffect(nodes[index] as GraphNode);
      if (fits && !(fixed && skipped > 0)) {
        order.push(nodes[index] as GraphNode);
        dependencies.placed(index, delay);
        if (skipped > 0) moved++;
      } else {
        skippedOnes[skipped++] = index;
        if (fixed) {
          at++;
          break;
        }
      }
    }
    // Those that were skipped stand before the ones that were not looked at.
    first = at - skipped;
    for (let i = 0; i < skipped; i++) left[first + i] = skippedOnes[i] as number;
    if (first > LEFT_OVER) {
      left = left.slice(first);
      first = 0;
    }
  }
  return { order, moved };
}
