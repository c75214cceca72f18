import { describe, expect, it } from "vitest";
import { HazardTracker } from "../src/hazards.ts";
import { IntervalMap } from "../src/interval_map.ts";
import { Footprint, MemoryUses } from "../src/memory_uses.ts";
import { type Accesses, overlaps, type Range } from "../src/ranges.ts";
import { Random } from "../src/testing/index.ts";
import { hazardByDefinition } from "./hazard_definition.ts";

/** A range of up to `longest` below `size`. */
function randomRange(random: Random, size: number, longest: number): Range {
  const begin = random.below(size);
  return { begin, end: Math.min(size, begin + 1 + random.below(longest)) };
}

describe("an interval map", () => {
  const WHOLE = { begin: 0, end: 1e9 };

  /** The intervals of a plain array of values. */
  function intervals(cells: readonly (number | undefined)[]): (Range & { value: number })[] {
    const found: { begin: number; end: number; value: number }[] = [];
    cells.forEach((value, i) => {
      const last = found.at(-1);
      if (value === undefined) return;
      if (last && last.end === i && last.value === value) last.end = i + 1;
      else found.push({ begin: i, end: i + 1, value });
    });
    return found;
  }

  // Few long ranges that are split and merged all the time; and many short ones, in many blocks.
  it.each([
    [40, 12, 4000],
    [6000, 3, 12_000],
    [6000, 900, 3000],
  ])("agrees with an array of %i values, ranges of up to %i", (size, longest, changes) => {
    const random = new Random(size + longest);
    const map = new IntervalMap<number>();
    let cells = Array<number | undefined>(size).fill(undefined);
    const compareAll = () => {
      const expected = intervals(cells);
      expect([...map.overlapping(WHOLE)]).toEqual(expected);
      expect(map.size).toBe(expected.length);
    };
    for (let change = 0; change < changes; change++) {
      const range = randomRange(random, size, longest);
      const kind = random.below(4);
      if (kind === 0) {
        const skip = random.below(3);
        const next = (value: number | undefined) => (value === skip ? undefined : ((value ?? 0) + 1) % 3);
        map.update(range, next);
        for (let at = range.begin; at < range.end; at++) cells[at] = next(cells[at]) ?? cells[at];
      } else if (kind < 3) {
        const value = random.below(3);
        map.set(range, value);
        cells.fill(value, range.begin, range.end);
      } else {
        map.delete(range);
        cells.fill(undefined, range.begin, range.end);
      }
      const asked = randomRange(random, size, longest);
      const inside = intervals(cells.slice(0, asked.end)).filter(({ end }) => end > asked.begin);
      if (size <= 40 || change % 64 === 0) {
        const found = [...map.overlapping(asked)];
        const clip = ({ begin, end, value }: Range & { value: number }) => ({
          begin: Math.max(begin, asked.begin),
          end: Math.min(end, asked.end),
          value,
        });
        expect(found.map(clip)).toEqual(inside.map(clip));
        expect(map.first(asked)).toEqual(found[0]);
      }
      if (size <= 40 || change % 1000 === 0) compareAll();
    }
    compareAll();
    map.filter((value) => value !== 1);
    cells = cells.map((value) => (value === 1 ? undefined : value));
    compareAll();
    map.clear();
    expect([map.size, map.first(WHOLE), ...map.overlapping(WHOLE)]).toEqual([0, undefined]);
  });
});

describe("the tracker", () => {
  const random = new Random(9);
  const accesses = (size: number, longest: number, label: string): Accesses => ({
    label,
    reads: Array.from({ length: random.below(4) }, () => randomRange(random, size, longest)),
    writes: Array.from({ length: random.below(3) }, () => randomRange(random, size, longest)),
  });

  it.each([
    [24, 6, 30, 300],
    [100_000, 40, 2000, 4],
  ])("agrees with the definition: %i bytes, ranges of up to %i", (size, longest, dispatches, programs) => {
    const kinds: Record<string, number> = {};
    for (let program = 0; program < programs; program++) {
      const tracker = new HazardTracker();
      let recorded: Accesses[] = [];
      // A manual encoder goes on without a barrier; an automatic one inserts one and forgets what came before.
      const manual = program % 2 === 1;
      for (let i = 0; i < dispatches; i++) {
        const next = accesses(size, longest, String(i));
        const hazard = hazardByDefinition(recorded, next);
        expect(tracker.conflicts(next)).toBe(hazard !== undefined);
        expect(tracker.find(next)).toEqual(hazard);
        if (hazard) kinds[hazard.kind] = (kinds[hazard.kind] ?? 0) + 1;
        if ((hazard && !manual) || random.below(dispatches) === 0) {
          tracker.clear();
          recorded = [];
        }
        tracker.add(next);
        recorded.push(next);
      }
    }
    for (const kind of ["RAW", "WAR", "WAW"]) expect(kinds[kind]).toBeGreaterThan(20);
  });
});

describe("the uses of memory in flight", () => {
  it.each([1, 3, 40, 200])("agree with the definition, %i submissions in flight", (most) => {
    const random = new Random(most);
    const uses = new MemoryUses();
    const recordings = Array.from({ length: 5 }, () => randomList());
    let flying: { id: number; list: Footprint }[] = [];
    function randomList(): Footprint {
      const accesses = Array.from({ length: random.below(6) }, () => ({
        label: "",
        reads: Array.from({ length: random.below(3) }, () => randomRange(random, 400, 9)),
        writes: Array.from({ length: random.below(2) }, () => randomRange(random, 400, 9)),
      }));
      return new Footprint(accesses);
    }
    const last = (range: Range, kinds: ("reads" | "writes")[]) =>
      flying
        .filter(({ list }) => list.accesses.some((a) => kinds.some((kind) => a[kind].some((r) => overlaps(r, range)))))
        .at(-1)?.id;
    for (let id = 1; id < 1500; id++) {
      // Some are replays, of which several may be in flight.
      const list = random.below(2) ? (recordings[random.below(5)] as Footprint) : randomList();
      uses.begin(id, list);
      flying.push({ id, list });
      while (flying.length > most || (flying.length > 0 && random.below(3) === 0)) {
        const [first] = flying.splice(0, 1) as [(typeof flying)[0]];
        uses.end(first.id, first.list);
      }
      if (random.below(40) === 0) flying = [];
      if (flying.length === 0) uses.clear();
      for (let question = 0; question < 3; question++) {
        const range = randomRange(random, 400, 20);
        expect(uses.last(range, "written")).toBe(last(range, ["writes"]));
        expect(uses.last(range, "used")).toBe(last(range, ["reads", "writes"]));
      }
    }
  });

  it("keep few intervals of submissions that have ended, while others are always in flight", () => {
    const uses = new MemoryUses();
    const list = (id: number) =>
      new Footprint([{ label: "", reads: [], writes: [{ begin: 1000 * id, end: 1000 * id + 8 }] }]);
    const lists = Array.from({ length: 8000 }, (_, id) => list(id));
    lists.forEach((footprint, id) => {
      if (id === 0) return;
      uses.begin(id, footprint);
      if (id > 20) uses.end(id - 20, lists[id - 20] as Footprint);
      expect(uses.last({ begin: 1000 * id, end: 1000 * id + 1 }, "used")).toBe(id);
      expect(uses.size).toBeLessThan(3000);
    });
  });
});
