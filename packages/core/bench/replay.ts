// What a replay costs the host: node --expose-gc scripts/run-source.mjs packages/core/bench/replay.ts
// Time of the call, and bytes of JavaScript's heap that it leaves behind, by the number of dispatches.
import { PerformanceObserver } from "node:perf_hooks";
import { Device } from "../src/index.ts";
import { increment } from "../test/kernels/probe.ts";

const ROUNDS = 40;
const CALLS = 50;

let collections = 0;
new PerformanceObserver((list) => {
  collections += list.getEntries().length;
}).observe({ entryTypes: ["gc"] });

const { gc } = globalThis as { gc?: () => void };
const rows: Record<string, Record<string, number | string>> = {};
for (const dispatches of [10, 100, 1000, 10_000]) {
  using device = Device.open("cpu", { threads: 2 });
  const encoder = device.encoder({ optimize: true });
  const xs = Array.from({ length: Math.min(500, dispatches) }, () => device.tensor("u32", [16]));
  for (let i = 0; i < dispatches; i++) {
    const x = xs[i % xs.length] as (typeof xs)[number];
    increment(encoder, { x, out: x });
  }
  const recording = encoder.finish();
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    for (let i = 0; i < CALLS; i++) recording.replay();
    best = Math.min(best, ((performance.now() - start) / CALLS) * 1e3);
    await recording.replay();
  }
  gc?.();
  const before = process.memoryUsage().heapUsed;
  const seen = collections;
  for (let i = 0; i < CALLS; i++) await recording.replay();
  const left = (process.memoryUsage().heapUsed - before) / CALLS;
  await new Promise((resolve) => setTimeout(resolve, 10));
  rows[`${dispatches} dispatches`] = {
    "µs a call": Number(best.toFixed(2)),
    "µs a dispatch": Number((best / dispatches).toFixed(4)),
    "heap bytes a call": gc ? Math.round(left) : "run with --expose-gc",
    "collections meanwhile": collections - seen,
  };
}
console.table(rows);
