import type { Hazard } from "../src/hazards.ts";
import type { Accesses, Range } from "../src/ranges.ts";

const meet = (a: Range, b: Range) => a.begin < b.end && b.begin < a.end;

/**
 * The definition of a conflict: the first recorded dispatch whose ranges overlap those of the new one. Within a dispatch,
 * read after write comes first, then write after write, then write after read.
 */
export function hazardByDefinition(recorded: readonly Accesses[], next: Accesses): Hazard | undefined {
  for (const earlier of recorded) {
    const pairs: [Hazard["kind"], Range, Range][] = [];
    for (const read of next.reads) for (const write of earlier.writes) pairs.push(["RAW", write, read]);
    for (const write of next.writes) {
      for (const other of earlier.writes) pairs.push(["WAW", other, write]);
      for (const read of earlier.reads) pairs.push(["WAR", read, write]);
    }
    const first = pairs.find(([, a, b]) => meet(a, b));
    if (first) {
      const [kind, range, later] = first;
      return { kind, earlier: { label: earlier.label, range }, later: { label: next.label, range: later } };
    }
  }
  return undefined;
}
