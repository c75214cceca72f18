// Where the scratch of a recording lies: tensors that are never needed at the same time share memory.
import type { Buffer } from "./buffer.ts";
import type { Graph, GraphNode } from "./graph.ts";
import { HazardTracker } from "./hazards.ts";

/** Scratch starts at multiples of this many bytes: every device can bind it there. */
const ALIGNMENT = 256;

const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/** The first and the last stage that use a buffer. A stage is what lies between two barriers. */
interface Life {
  first: number;
  last: number;
}

/** Whether the dispatch stands behind a barrier that its hazards ask for. */
function needsBarrier(hazards: HazardTracker, { accesses }: GraphNode): boolean {
  const needed = hazards.conflicts(accesses);
  if (needed) hazards.clear();
  hazards.add(accesses);
  return needed;
}

function livesOf(graph: Graph, isScratch: (buffer: Buffer) => boolean, automatic: boolean): Map<Buffer, Life> {
  const hazards = automatic ? new HazardTracker() : undefined;
  const lives = new Map<Buffer, Life>();
  let stage = 0;
  for (const command of graph) {
    if (command === "barrier") {
      stage++;
      continue;
    }
    if (hazards && needsBarrier(hazards, command)) stage++;
    const { kernel, buffers } = command.dispatch;
    for (let i = 0; i < kernel.bufferNames.length; i++) {
      const tensor = buffers[kernel.bufferNames[i] as string];
      if (!tensor || !isScratch(tensor.buffer)) continue;
      const life = lives.get(tensor.buffer);
      if (life) life.last = stage;
      else lives.set(tensor.buffer, { first: stage, last: stage });
    }
  }
  return lives;
}

/** Free ranges of a block that grows, in order of place. */
class Block {
  bytes = 0;
  private free: { begin: number; end: number }[] = [];

  /** The place of so many bytes: in the smallest gap that holds them, else at the end, which grows. */
  take(bytes: number): number {
    let best: { begin: number; end: number } | undefined;
    for (const gap of this.free)
      if (gap.end - gap.begin >= bytes && (!best || gap.end - gap.begin < best.end - best.begin)) best = gap;
    const last = this.free.at(-1);
    if (!best && last?.end === this.bytes) best = last;
    if (!best) {
      best = { begin: this.bytes, end: this.bytes };
      this.free.push(best);
    }
    const { begin } = best;
    best.begin += bytes;
    if (best.begin > best.end) best.end = best.begin;
    this.bytes = Math.max(this.bytes, best.end);
    if (best.begin === best.end) this.free.splice(this.free.indexOf(best), 1);
    return begin;
  }

  give(begin: number, end: number): void {
    let at = this.free.findIndex((gap) => gap.begin >= end);
    if (at < 0) at = this.free.length;
    const before = this.free[at - 1];
    const after = this.free[at];
    const joinsBefore = before?.end === begin;
    const joinsAfter = after?.begin === end;
    if (before && joinsBefore) {
      before.end = after && joinsAfter ? after.end : end;
      if (joinsAfter) this.free.splice(at, 1);
    } else if (after && joinsAfter) after.begin = begin;
    else this.free.splice(at, 0, { begin, end });
  }
}

/**
 * The place of each scratch buffer in one block, and the bytes of the block. A buffer takes the memory of one whose last
 * use lies before a barrier that is there anyway: sharing memory adds no hazard that needs a barrier.
 */
export function placeScratch(
  graph: Graph,
  isScratch: (buffer: Buffer) => boolean,
  { automatic, reuse }: { automatic: boolean; reuse: boolean },
): { places: Map<Buffer, number>; bytes: number } {
  const block = new Block();
  const places = new Map<Buffer, number>();
  const byFirst: Buffer[][] = [];
  const byLast: Buffer[][] = [];
  for (const [buffer, { first, last }] of livesOf(graph, isScratch, automatic)) {
    byFirst[first] ??= [];
    byFirst[first].push(buffer);
    byLast[last] ??= [];
    byLast[last].push(buffer);
  }
  const bytesOf = ({ byteLength }: Buffer) => aligned(byteLength);
  for (const [stage, buffers] of byFirst.entries()) {
    for (const buffer of (reuse && stage > 0 && byLast[stage - 1]) || []) {
      const begin = places.get(buffer) as number;
      block.give(begin, begin + bytesOf(buffer));
    }
    if (!buffers) continue;
    if (buffers.length > 1) buffers.sort((a, b) => b.byteLength - a.byteLength);
    for (const buffer of buffers) places.set(buffer, block.take(bytesOf(buffer)));
  }
  return { places, bytes: block.bytes };
}
