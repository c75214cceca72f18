import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Limits } from "@mlxts/bench";
import { bundled } from "@mlxts/test-kit/bundled";
import { afterAll, describe, expect, it } from "vitest";
import { rowMarkup } from "../src/bench_bars.ts";
import { boundOf } from "../src/bench_limits.ts";
import { failuresOf, refusedRow } from "../src/bench_op.ts";
import { type BenchReport, type BenchRow, besideLimit, bestPeer, rowsTable, timesPeer } from "../src/bench_report.ts";
import { cpuDemand, GPU_TARGETS, gpuDemand, gpuTarget, OP_TARGETS, targeted } from "../src/bench_targets.ts";
import { publicOps } from "../src/op_list.ts";
import { inProcess, root } from "./helpers.ts";

const folder = mkdtempSync(join(tmpdir(), "mlxts-bench-op-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = join(folder, "report.json");
const report = () => JSON.parse(readFileSync(file, "utf8")) as BenchReport;
const quick = ["--case", "[1, 4096] f32", "--samples", "2", "--peers", "none", "--json", file];

describe("mlxts bench op", () => {
  it("runs an op's cases, then measures it on each number of threads", async () => {
    const { status, stdout } = await inProcess("bench", "op", "rmsNorm", ...quick);
    expect(status).toBe(0);
    const { rows, limits, verified } = report();
    expect(verified).toEqual(["rmsNorm"]);
    expect(limits.map(({ threads }) => threads)).toEqual([1, 2]);
    expect(rows.map(({ name, threads, unit, ours }) => [name, threads, unit, ours?.samples])).toEqual([
      ["rmsNorm", 1, "µs", 2],
      ["rmsNorm", 2, "µs", 2],
    ]);
    for (const row of rows) {
      expect(row.ours?.median).toBeGreaterThan(0.01);
      expect(row.ours?.median).toBeGreaterThan(0.2 * (row.limit?.value ?? 0));
      expect(row.target?.text).toBe("2.4 × the limit");
    }
    expect(stdout).toContain("| rmsNorm | [1, 4096] f32 | 1 |");
  }, 120_000);

  it("measures the checkout in a folder in turn with this one", async () => {
    const { status } = await inProcess(
      "bench",
      "op",
      "rmsNorm",
      ...quick,
      "--unverified",
      "--base",
      root,
      "--threads",
      "1",
    );
    expect(status).toBe(0);
    const [row] = report().rows;
    expect(row?.base?.spread.samples).toBe(2);
    expect(row?.base?.ratio).toBeGreaterThan(0.05);
    expect(report().verified).toBeNull();
  }, 120_000);

  it("refuses a revision that there is not, and leaves nothing behind", async () => {
    const before = readdirSync(tmpdir()).filter((name) => name.startsWith("mlxts-base-"));
    const { status, stderr } = await inProcess("bench", "op", "rmsNorm", ...quick, "--unverified", "--base", "no-such");
    expect([status, stderr]).toEqual([1, expect.stringMatching(/^Io: bench op: `git rev-parse .*no-such.*` failed: /)]);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith("mlxts-base-"))).toEqual(before);
    const listed = spawnSync("git", ["worktree", "list"], { cwd: root, encoding: "utf8" });
    expect(listed.status).toBe(0);
    expect(listed.stdout).not.toContain("mlxts-base-");
  });

  it.each([
    [["nothing"], 1, "KernelNotFound: bench op: no op is called nothing; `mlxts op --list` names them all\n"],
    [["rmsNorm", "--package", "nothing"], 2, /^bench op: `--package` must be one of .*norms.*, got nothing\n$/],
    [["rmsNorm", "--case", "nothing"], 2, /must leave at least one case, got nothing\n$/],
    [["rmsNorm", "--threads", "0"], 2, "bench op: `--threads` must be integers ≥ 1 separated by commas, got 0\n"],
    [["rmsNorm", "--samples", "0"], 2, /^bench op: `--samples` must be an integer from 1 to 1000, got 0\n$/],
  ] as const)("refuses %j", async (args, code, message) => {
    const { status, stderr } = await inProcess("bench", "op", ...args);
    expect(status).toBe(code);
    if (typeof message === "string") expect(stderr).toBe(message);
    else expect(stderr).toMatch(message);
  });
});

describe("an op whose cases fail", () => {
  const faulty = bundled("apps/cli/test/faulty_suites.ts");

  it("is found before anything is measured", async () => {
    const failures = await failuresOf(
      "cpu",
      ["right", "wrong", "throwing"],
      [await faulty],
      new AbortController().signal,
    );
    expect(Object.fromEntries(failures)).toEqual({ right: 0, wrong: 2, throwing: 2 });
  }, 60_000);

  it("has a row without a time, which says why", () => {
    const row = refusedRow("wrong", { name: "case", bytes: 1, flops: 1, setup: () => ({ encode() {} }) }, 2, 2);
    expect([row.ours, row.threads]).toEqual([null, 2]);
    expect(row.note).toBe("not measured: 2 conformance cases fail; see mlxts verify --op wrong");
  });
});

describe("rows of a GPU, whose limits are not measured", () => {
  it("say how many bytes and operations a second they do", () => {
    const row = refusedRow("op", { name: "case", bytes: 1, flops: 1, setup: () => ({ encode() {} }) }, 1, 1);
    const ours = { median: 2, least: 2, most: 2, samples: 1 };
    const measured = { ...row, ours, note: null, work: { bytes: 8000, operations: 500_000 } };
    const { head, lines } = rowsTable({ rows: [measured] } as unknown as BenchReport);
    expect(head.slice(-2)).toEqual(["GB/s", "GFLOP/s"]);
    expect(lines).toEqual([["op", "case", "1", "2 (2 – 2)", "µs", "4", "250"]]);
  });
});

describe("targets", () => {
  it("are of cases that exist", async () => {
    const missing = [];
    for (const { op, case: name } of [...OP_TARGETS, ...GPU_TARGETS]) {
      const module = `${publicOps().get(op)?.package}/bench`;
      const { benches } = (await import(module)) as { benches: { op: string; cases: { name: string }[] }[] };
      const cases = benches.filter((bench) => bench.op === op).flatMap((bench) => bench.cases);
      if (!cases.some((each) => each.name === name)) missing.push(`${op} ${name}`);
    }
    expect(missing).toEqual([]);
  });

  it("allow other multiples of the limit of tiles, where products are all that the limit has", () => {
    const target = OP_TARGETS.find(({ tileTimes }) => tileTimes) as (typeof OP_TARGETS)[number];
    expect(cpuDemand(target, { value: 1, of: "bf16 tiles" }, 2)?.value).toBe(target.tileTimes?.[1]);
    expect(cpuDemand(target, { value: 1, of: "bf16 products" }, 2)?.value).toBe(target.times[1]);
    expect(cpuDemand(target, { value: 1, of: "bf16 tiles" }, 4)).toBeNull();
    const { tileTimes: _, ...other } = target;
    expect(cpuDemand(other, { value: 10, of: "bf16 tiles" }, 1)?.value).toBe(10 * target.times[0]);
  });

  it("are multiples of the fastest peer's time on a GPU, or the time for the bytes at a speed", () => {
    const testCase = { name: "", bytes: 5e6, flops: 1, setup: () => ({ encode() {} }) };
    const beside = { op: "op", case: "", about: "", timesPeer: 1.3 };
    const peer = (name: string, median: number) => ({ name, median, least: 1, most: 99, samples: 3 });
    expect(gpuDemand(beside, testCase, [peer("slow", 30), peer("fast", 20)])).toEqual({
      value: 26,
      text: "1.3 × fast",
    });
    expect(gpuDemand(beside, testCase, [])).toBeNull();
    const read = { op: "op", case: "", about: "", gbs: 2500 };
    expect(gpuDemand(read, testCase, [])).toEqual({ value: 2, text: "2.5 TB/s" });
    expect(gpuDemand(undefined, testCase, [peer("fast", 20)])).toBeNull();
    expect(gpuTarget("rmsNorm", { ...testCase, name: "[4096, 4096] bf16" })?.about).toBe("RMS norm");
  });

  it("say what the limit of a case follows from", () => {
    const testCase = { name: "[1, 4096] f32", bytes: 1, flops: 1, setup: () => ({ encode() {} }) };
    expect(targeted("rmsNorm", testCase)?.testCase.from).toBe("core cache");
    expect(targeted("rmsNorm", { ...testCase, name: "other" })).toBeUndefined();
  });
});

describe("the limit of a case", () => {
  const limits: Limits = {
    threads: 1,
    ...{ gflopsF32: 200, gflopsBf16: 400, gopsInt8: 800, gflopsBf16Tiles: null, gopsInt8Tiles: null },
    ...{ memoryGBs: 10, sharedCacheGBs: 20, coreCacheGBs: 40 },
  };
  const computing = { name: "case", bytes: 1, flops: 8e9, setup: () => ({ encode() {} }) };

  it("is that of its bytes or of its operations, whichever takes longer", () => {
    expect(boundOf({ ...computing, flops: 1, bytes: 4e4 }, limits)).toMatchObject({ value: 1, of: "core cache" });
    expect(boundOf({ ...computing, flops: 1, bytes: 4e6 }, limits)).toMatchObject({ value: 200, of: "shared cache" });
    expect(boundOf({ ...computing, flops: 1, bytes: 4e6 }, { ...limits, threads: 2 }).of).toBe("core cache");
    expect(boundOf({ ...computing, flops: 1, bytes: 2e7 }, limits)).toMatchObject({ value: 2000, of: "memory" });
    expect(boundOf(computing, limits)).toMatchObject({ value: 40_000, of: "f32 products" });
    expect(boundOf({ ...computing, products: "bf16" }, limits)).toMatchObject({ value: 20_000, of: "bf16 products" });
    expect(boundOf({ ...computing, products: "int8" }, limits)).toMatchObject({ value: 10_000, of: "int8 products" });
  });

  it("follows from tiles where the machine has them, and from f32 where pairs of bf16 are slower", () => {
    const tiles = { ...limits, gflopsBf16Tiles: 4000, gopsInt8Tiles: 8000 };
    expect(boundOf(computing, tiles)).toMatchObject({ value: 40_000, of: "f32 products" });
    expect(boundOf({ ...computing, products: "bf16" }, tiles)).toMatchObject({ value: 2000, of: "bf16 tiles" });
    expect(boundOf({ ...computing, products: "int8" }, tiles)).toMatchObject({ value: 1000, of: "int8 tiles" });
    const slow = { ...limits, gflopsBf16: 100 };
    expect(boundOf({ ...computing, products: "bf16" }, slow)).toMatchObject({ value: 40_000, of: "f32 products" });
  });

  it("follows with codes from bytes where those are faster, three for an f32 and two for a bf16", () => {
    const tiles = { ...limits, gflopsBf16Tiles: 4000, gopsInt8Tiles: 9000 };
    expect(boundOf({ ...computing, products: "f32 with codes" }, tiles).of).toBe("3 × int8 tiles");
    expect(boundOf({ ...computing, products: "f32 with codes" }, limits).of).toBe("3 × int8 products");
    expect(boundOf({ ...computing, products: "bf16 with codes" }, tiles).of).toBe("2 × int8 tiles");
    const noPairs = { ...limits, gflopsBf16: 200 };
    expect(boundOf({ ...computing, products: "bf16 with codes" }, noPairs)).toMatchObject({
      value: 20_000,
      of: "2 × int8 products",
    });
    expect(boundOf({ ...computing, products: "bf16 with codes" }, { ...limits, gopsInt8: 700 }).of).toBe(
      "bf16 products",
    );
  });
});

describe("the table of limits", () => {
  it("has columns of tiles where there are any", async () => {
    const { status, stdout } = await inProcess("bench", "machine", "--threads", "1", "--json", file);
    expect(status).toBe(0);
    const [limits] = report().limits;
    const hasTiles = report().device.level === "amx";
    expect(stdout.includes("| bf16 tiles GFLOP/s | int8 tiles GOP/s |")).toBe(hasTiles);
    expect(typeof limits?.gopsInt8Tiles === "number").toBe(hasTiles);
  }, 60_000);
});

describe("a row", () => {
  const spread = (median: number) => ({ median, least: median, most: median, samples: 1 });
  const row = (unit: BenchRow["unit"], ours: number, limit: number, ...peers: number[]): BenchRow => ({
    ...{ name: "op", case: "case", threads: 1, unit, ours: spread(ours), limit: { value: limit, of: "memory" } },
    ...{ peers: peers.map((median, i) => ({ name: `peer ${i}`, ...spread(median) })) },
    ...{ work: null, target: null, base: null, note: null },
  });

  it("of a time is a multiple of the limit, and beside the peer that takes least", () => {
    const of = row("µs", 30, 10, 90, 60);
    expect([besideLimit(of), bestPeer(of)?.name, timesPeer(of)]).toEqual(["3 ×", "peer 1", 2]);
  });

  it("of a rate is a part of the limit, and beside the peer that does most", () => {
    const of = row("tokens/s", 30, 90, 10, 60);
    expect([besideLimit(of), bestPeer(of)?.name, timesPeer(of)]).toEqual(["33.3 %", "peer 1", 0.5]);
    expect(rowMarkup(of)).toContain("33.3 % of the limit, 90 tokens/s (memory)");
    expect(rowMarkup(row("µs", 30, 10))).toContain("3 × the limit, 10 µs (memory)");
  });
});
