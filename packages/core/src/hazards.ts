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
  private recorded: Accesses[] = [];
  private readonly read = new IntervalMap<true>();
  private readonly written = new IntervalMap<true>();

  /** Whether a dispatch conflicts with anything recorded, in O(log n). */
  conflicts({ reads, writes }: Accesses): boolean {
    return (
      reads.some((range) => this.written.first(range)) ||
      writes.some((range) => this.written.first(range) || this.read.first(range))
    );
  }

  /** The conflict with the first dispatch that has one. It searches everything recorded, and is only for messages. */
  find(next: Accesses): Hazard | undefined {
    for (const { label, reads, writes } of this.recorded) {
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
    this.recorded.push(next);
    for (const range of next.reads) this.read.set(range, true);
    for (const range of next.writes) this.written.set(range, true);
  }

  clear(): void {
    this.recorded.length = 0;
    this.read.clear();
    this.written.clear();
  }
}
