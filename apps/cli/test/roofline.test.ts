// Names of a roofline's lines stand beside them, and no other line goes through one.
import { describe, expect, it } from "vitest";
import { crosses, rooflineMarkup } from "../src/bench_roofline.ts";
import { SAMPLE } from "./bench_sample.ts";

type Limits = (typeof SAMPLE.limits)[number];

const linesOf = (markup: string) =>
  [...markup.matchAll(/<line class="roof [\w-]+" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"/g)].map(
    (match) => {
      const [x1, y1, x2, y2] = match.slice(1).map(Number) as [number, number, number, number];
      return { x1, y1, x2, y2 };
    },
  );

/** Boxes of the level names: so wide and high is what the browsers of tests show at least. */
const namesOf = (markup: string) =>
  [...markup.matchAll(/<text class="roof-name" x="([\d.]+)" y="([\d.]+)" text-anchor="end">([^<]*)</g)].map(
    ([, x, y, text = ""]) => ({
      left: Number(x) - text.length * 5.5,
      right: Number(x),
      top: Number(y) - 9,
      bottom: Number(y) + 1,
    }),
  );

describe("a roofline", () => {
  const [sample] = SAMPLE.limits as [Limits];
  const machines = Array.from({ length: 200 }, (_, i) => {
    const factor = (n: number) => 10 ** (((i * 7919 + n * 104729) % 1000) / 500);
    const memoryGBs = 10 * factor(1);
    const sharedCacheGBs = memoryGBs * factor(2);
    const gflopsF32 = 50 * factor(3);
    return {
      ...sample,
      memoryGBs,
      sharedCacheGBs,
      coreCacheGBs: sharedCacheGBs * factor(4),
      gflopsF32,
      gflopsBf16: gflopsF32 * factor(5),
      gopsInt8: gflopsF32 * factor(6),
    };
  });

  it("has no name that a line goes through, whatever the machine", () => {
    let names = 0;
    for (const limits of [sample, ...machines]) {
      const markup = rooflineMarkup(limits, []);
      const lines = linesOf(markup);
      expect(lines.length).toBeGreaterThan(3);
      for (const name of namesOf(markup)) {
        names++;
        expect(
          lines.filter((line) => crosses(line, name)),
          JSON.stringify(limits),
        ).toEqual([]);
      }
    }
    expect(names).toBeGreaterThan(300);
  });

  it("knows whether a line goes through a box", () => {
    const box = { left: 10, right: 20, top: 10, bottom: 20 };
    expect(crosses({ x1: 0, y1: 15, x2: 30, y2: 15 }, box)).toBe(true);
    expect(crosses({ x1: 0, y1: 30, x2: 30, y2: 0 }, box)).toBe(true);
    expect(crosses({ x1: 0, y1: 21, x2: 30, y2: 21 }, box)).toBe(false);
    expect(crosses({ x1: 0, y1: 15, x2: 9, y2: 15 }, box)).toBe(false);
    expect(crosses({ x1: 0, y1: 0, x2: 12, y2: 0 }, box)).toBe(false);
  });
});
