// Who reads and writes which memory: what `Units` finds is what a scan of the whole recording finds.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { GraphNode } from "../src/graph.ts";
import { overlaps, type Range } from "../src/ranges.ts";
import { Units } from "../src/units.ts";

const SPACE = 40;
const ranges = fc
  .tuple(fc.nat({ max: SPACE }), fc.integer({ min: 1, max: 12 }))
  .map(([begin, bytes]): Range => ({ begin, end: begin + bytes }));
const nodes = fc.record({
  reads: fc.array(ranges, { maxLength: 3 }),
  writes: fc.array(ranges, { maxLength: 2 }),
});
const nodeOf = (accesses: { reads: Range[]; writes: Range[] }): GraphNode => ({
  dispatch: undefined as never,
  accesses: { label: "node", ...accesses },
  call: undefined,
});

describe("Units", () => {
  it("finds who uses memory, also after calls have become one", () => {
    fc.assert(
      fc.property(
        fc.array(nodes, { minLength: 2, maxLength: 12 }),
        fc.array(fc.record({ places: fc.tuple(fc.nat(), fc.nat()), node: nodes }), { maxLength: 3 }),
        fc.array(fc.record({ range: ranges, low: fc.integer({ min: -1, max: 12 }), high: fc.nat({ max: 12 }) })),
        (recorded, replacements, questions) => {
          const units = new Units(recorded.map(nodeOf));
          const plain: (typeof recorded)[number][][] = recorded.map((accesses) => [accesses]);
          for (const { places, node } of replacements) {
            const [first, second] = places.map((place) => place % recorded.length) as [number, number];
            units.replace([first, second], second, { call: undefined, nodes: [nodeOf(node)] });
            plain[first] = [];
            plain[second] = [node];
          }
          for (const { range, low, high } of questions)
            for (const access of ["reads", "writes"] as const) {
              const places = plain.flatMap((each, place) =>
                each.some((accesses) => accesses[access].some((one) => overlaps(one, range))) ? [place] : [],
              );
              const before = places.filter((place) => place < high);
              expect([...units.between(access, range, low, high)]).toEqual(before.filter((place) => place > low));
              expect([...units.before(access, range, high)]).toEqual(before.reverse());
              if (access === "writes") expect(units.lastWriter(range, high)).toBe(before[0]);
            }
        },
      ),
      { numRuns: 500, seed: 3 },
    );
  });
});
