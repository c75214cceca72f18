import { IntervalMap } from "./interval_map.ts";
import { type Accesses, overlaps, type Range } from "./ranges.ts";

/** Two dispatches that need a barrier between them, and the ranges where they meet. */
export interface Hazard {
  kind: "RAW" | "WAR" | "WAW";
  earlier: { label: string; range: Range };
  later: { label: string; range: Range };
}

/** Finds the conflicts since the last barrier: read after write, write after read, write after write. */
export class HazardTracker {
  private readonly recorded: Accesses[] = [];
  /** How many of them come after the last barrier; those behind are old. */
  private count = 0;
  private readonly read = new IntervalMap<true>();
  private readonly written = new IntervalMap<true>();

  /** Whether a dispatch conflicts with anything recorded, in O(log n). */
  conflicts({ reads, writes }: Accesses): boolean {
    for (let i = 0; i < reads.length; i++) if (this.written.first(reads[i] as Range)) return true;
    for (let i = 0; i < writes.length; i++)
      if (this.written.first(writes[i] as Range) || this.read.first(writes[i] as Range)) return true;
    return false;
  }

  /** The conflict with the first dispatch that has one. It searches everything recorded, and is only for messages. */
  find(next: Accesses): Hazard | undefined {
    for (const { label, reads, writes } of this.recorded.slice(0, this.count)) {
      const hazard = (kind: Hazard["kind"], earlier: Range, later: Range): Hazard => ({
        kind,
        earlier: { label, range: earlier },
        later: { label: next.label, range: later },
      });
      for (const later of next.reads)
        for (const earlier of writes) if (overlaps(earlier, later)) return hazard("RAW", earlier, later);
      for (const later of next.writes) {
        for (const earlier of writes) if (overlaps(earlier, later)) return hazard("WAW", earlier, later);
        for (const earlier of reads) if (overlaps(earlier, later)) return hazard("WAR", earlier, later);
      }
    }
    return undefined;
  }

  add(next: Accesses): void {
    const { reads, writes } = next;
    this.recorded[this.count++] = next;
    for (let i = 0; i < reads.length; i++) this.read.set(reads[i] as Range, true);
    for (let i = 0; i < writes.length; i++) this.written.set(writes[i] as Range, true);
  }

  clear(): void {
    this.count = 0;
    this.read.clear();
    this.written.clear();
  }
}
