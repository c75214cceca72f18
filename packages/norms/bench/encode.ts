// What encoding a tiny op costs JavaScript: node scripts/run-source.mjs packages/norms/bench/encode.ts
import { Device } from "@mlxts/core";
import { rmsNorm } from "../src/index.ts";

const ROUNDS = 2000;
const CALLS = 20;

using device = Device.open("cpu", { threads: 1 });
const x = device.tensor("f32", [1, 8]);
const weight = device.tensor("f32", [8]);
const out = device.tensor("f32", [1, 8]);

/** Calls each second of the median round. */
function callsPerSecond(call: (encoder: ReturnType<Device["encoder"]>) => void): number {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    using encoder = device.encoder({ barriers: "manual" });
    const start = performance.now();
    for (let i = 0; i < CALLS; i++) call(encoder);
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  return Math.round((CALLS / (times[ROUNDS >> 1] as number)) * 1e3);
}

console.table({
  "rmsNorm, output given": { "calls/s": callsPerSecond((encoder) => rmsNorm(encoder, { x, weight, out })) },
  "rmsNorm on views made for the call": {
    "calls/s": callsPerSecond((encoder) =>
      rmsNorm(encoder, { x: x.view(0, [1, 8]), weight: weight.view(0, [8]), out: out.view(0, [1, 8]) }),
    ),
  },
});
