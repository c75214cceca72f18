// Benchmarks: npm run bench -- [--package norms] [--op rmsNorm] [--case "f32 chunk"] [--threads 1,2] [--json]. Times are medians of replayed recordings;
// limits are measured in the same run: f32 multiply-adds (bf16 pairs can do twice that) and bandwidth.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { Device } from "@mlxts/core";
import type { Bench, BenchCase } from "@mlxts/core/testing";
import { type Limits, measureLimits } from "@mlxts/test-kit/bench/limits";
import { measure, measurePeer } from "@mlxts/test-kit/bench/measure";

const { values } = parseArgs({
  options: {
    package: { type: "string" },
    op: { type: "string" },
    case: { type: "string" },
    threads: { type: "string", default: "1,2" },
    json: { type: "boolean" },
    samples: { type: "string", default: "15" },
  },
});
const threadCounts = values.threads.split(",").map(Number);
const samples = Number(values.samples);
const packages = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "packages");

/** The least time in µs that the machine allows: bytes against bandwidth, operations against f32 multiply-adds. */
function limitOf({ bytes, flops }: BenchCase, limits: Limits): number {
  const bandwidth = bytes > 16 * 2 ** 20 ? limits.memoryGBs : limits.cacheGBs;
  return Math.max(bytes / bandwidth, flops / limits.gflops) / 1e3;
}

const limits = new Map<number, Limits>();
for (const threads of threadCounts) {
  using device = Device.open("cpu", { threads });
  const measured = await measureLimits(device);
  limits.set(threads, measured);
  const { gflops, memoryGBs, cacheGBs } = measured;
  process.stderr.write(
    `limits T${threads}: ${gflops.toFixed(0)} GFLOP/s f32, ${memoryGBs.toFixed(0)} GB/s memory, ${cacheGBs.toFixed(0)} GB/s cache\n`,
  );
}

const rows: Record<string, string | number>[] = [];
for (const name of values.package ? [values.package] : readdirSync(packages)) {
  let files: string[] = [];
  try {
    files = readdirSync(join(packages, name, "bench")).filter((file) => file.endsWith(".bench.ts"));
  } catch {
    continue;
  }
  for (const file of files) {
    const bench = ((await import(pathToFileURL(join(packages, name, "bench", file)).href)) as { default: Bench })
      .default;
    if (values.op && bench.op !== values.op) continue;
    for (const testCase of bench.cases.filter(({ name }) => name.includes(values.case ?? ""))) {
      const row: Record<string, string | number> = {
        op: bench.op,
        case: testCase.name,
        ...(testCase.peer && { peer: testCase.peer.name }),
      };
      for (const threads of threadCounts) {
        const us = await measure(testCase, threads, samples);
        row[`µs T${threads}`] = Number(us.toPrecision(4));
        row[`GB/s T${threads}`] = Number((testCase.bytes / us / 1e3).toPrecision(3));
        row[`GFLOP/s T${threads}`] = Number((testCase.flops / us / 1e3).toPrecision(3));
        row[`limit µs T${threads}`] = Number(limitOf(testCase, limits.get(threads) as Limits).toPrecision(3));
        const peer = await measurePeer(testCase, threads, samples);
        if (peer !== undefined) row[`peer µs T${threads}`] = Number(peer.toPrecision(4));
      }
      rows.push(row);
      if (!values.json)
        process.stderr.write(
          `${bench.op} ${testCase.name}: ${threadCounts.map((t) => `${row[`µs T${t}`]} µs T${t}`).join(", ")}\n`,
        );
    }
  }
}
if (values.json) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
else console.table(rows);
