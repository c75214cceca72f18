import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { reportHtml } from "../src/bench_html.ts";
import { HOSTILE, SAMPLE } from "./bench_sample.ts";
import { Chromium, chromiumProgram, type View } from "./chromium.ts";

const title = "the page of a bench report";
const missing = chromiumProgram ? undefined : "no Chromium here";

const VIEWS: View[] = [1280, 400].flatMap((width) => [
  { width, scheme: "light" as const },
  { width, scheme: "dark" as const },
]);

describe.skipIf(missing)(missing ? `${title} (skipped: ${missing})` : title, () => {
  let chromium: Chromium;
  beforeAll(() => {
    chromium = new Chromium(chromiumProgram as string);
  });
  afterAll(() => chromium.close());

  for (const view of VIEWS) {
    it(`is drawn without a complaint, ${view.width} pixels wide, ${view.scheme}`, async () => {
      await chromium.show(reportHtml(SAMPLE), view);
      const measured = SAMPLE.rows.filter(({ ours }) => ours);
      const points = measured.filter(({ work }) => work && work.operations > 0);
      const expected = SAMPLE.limits.map(({ threads }) => points.filter((row) => row.threads === threads).length);
      const page = await chromium.facts();
      expect(page.points).toEqual(expected.map((count) => ({ count, inside: count })));
      expect(page.roofs).toBe(6 * SAMPLE.limits.length);
      expect(page.bars.length).toBe(
        measured.reduce((sum, { peers, base }) => sum + 1 + peers.length + Number(base !== null), 0),
      );
      for (const bar of page.bars) {
        expect(bar.width).toBeGreaterThan(0);
        expect(bar.height).toBeGreaterThanOrEqual(8);
      }
      expect(page.textsInTheWay).toEqual([]);
      expect(page.overflow).toBeLessThanOrEqual(0);
      expect(page.contrast.least, page.contrast.text).toBeGreaterThanOrEqual(4.5);
      expect(chromium.complaints).toEqual([]);
    });
  }

  it("has bars as long as what they show", async () => {
    const row = SAMPLE.rows[0] as (typeof SAMPLE.rows)[number];
    await chromium.show(reportHtml({ ...SAMPLE, rows: [row] }), { width: 1280, scheme: "light" });
    const { bars } = await chromium.facts();
    const all = [row.ours, ...row.peers].map((spread) => spread?.median as number);
    expect(bars.map(({ kind }) => kind)).toEqual(["ours", "peer", "peer"]);
    for (const [i, bar] of bars.entries())
      expect(bar.part / (bars[0]?.part as number)).toBeCloseTo((all[i] as number) / (all[0] as number), 2);
  });

  it("is light or dark as the reader's system is", async () => {
    const backgrounds = [];
    for (const scheme of ["light", "dark"] as const) {
      await chromium.show(reportHtml(SAMPLE), { width: 1280, scheme });
      backgrounds.push((await chromium.facts()).background);
    }
    expect(backgrounds).toEqual(["rgb(246, 247, 249)", "rgb(16, 20, 26)"]);
  });

  it("shows names with markup as they are, and runs nothing", async () => {
    await chromium.show(reportHtml(SAMPLE), { width: 1280, scheme: "light" });
    const page = await chromium.facts();
    expect(page.foreign).toBe(0);
    expect(page.title).toBe("mlxts bench op, A Processor of 8 Cores");
    expect(page.text.split(HOSTILE).length).toBeGreaterThanOrEqual(4);
    expect(page.text).toContain("not measured: 3 conformance cases fail");
  });

  it("shows limits without rows, and rows without limits", async () => {
    for (const report of [
      { ...SAMPLE, tool: "mlxts bench machine" as const, rows: [] },
      { ...SAMPLE, tool: "mlxts bench model" as const, limits: [] },
    ])
      for (const view of VIEWS) {
        await chromium.show(reportHtml(report), view);
        const page = await chromium.facts();
        expect(page.points).toEqual(report.limits.map(() => ({ count: 0, inside: 0 })));
        expect(page.bars.length > 0).toBe(report.rows.length > 0);
        expect(page.textsInTheWay).toEqual([]);
        expect(page.overflow).toBeLessThanOrEqual(0);
      }
    expect(chromium.complaints).toEqual([]);
  });

  it("shows the roofs of tiles where the machine has them", async () => {
    const limits = SAMPLE.limits.map((each) => ({
      ...each,
      gflopsBf16: each.gflopsF32 / 2,
      gflopsBf16Tiles: each.gflopsF32 * 14,
      gopsInt8Tiles: each.gflopsF32 * 28,
    }));
    for (const view of VIEWS) {
      await chromium.show(reportHtml({ ...SAMPLE, limits }), view);
      const page = await chromium.facts();
      expect(page.roofs).toBe(8 * limits.length);
      expect(page.text).toContain("int8 tiles 7112");
      expect(page.points.every(({ count, inside }) => count > 0 && inside === count)).toBe(true);
      expect(page.textsInTheWay).toEqual([]);
    }
    expect(chromium.complaints).toEqual([]);
  });

  it("finds texts that meet, points without a size and what is loaded from elsewhere", async () => {
    const own = new Chromium(chromiumProgram as string);
    try {
      const page = reportHtml(SAMPLE)
        .replace("</style>", "h1 { margin-bottom: -30px; } .point { d: none; }</style>")
        .replace(/<meta http-equiv[^>]*>/, "")
        .replace("</main>", '<img src="http://localhost:9/x.png"><div style="width: 2000px">wide</div></main>');
      await own.show(page, { width: 1280, scheme: "light" });
      const found = await own.facts();
      expect(found.textsInTheWay.some((text) => text.includes("meets mlxts bench op"))).toBe(true);
      expect(found.points.every(({ inside }) => inside === 0)).toBe(true);
      expect(found.overflow).toBeGreaterThan(0);
      expect(own.complaints.some((text) => text === "loads http://localhost:9/x.png")).toBe(true);
    } finally {
      await own.close();
    }
  });
});
