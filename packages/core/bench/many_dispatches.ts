// The time of a dispatch among very many: node scripts/run-source.mjs packages/core/bench/many_dispatches.ts [MOST]
import { Device } from "../src/index.ts";
import { increment } from "../test/kernels/probe.ts";

const ROUNDS = 5;
const WORDS = 16;
const most = Number(process.argv[2] ?? 100_000);

const rows: Record<string, Record<string, number>> = {};
for (const order of ["independent", "in a row"])
  for (let n = 1000; n <= most; n *= 10) {
    using device = Device.open("cpu", { threads: 2 });
    const x = device.tensor("u32", [WORDS]);
    const all = device.tensor("u32", [n, WORDS]);
    const outs = Array.from({ length: n }, (_, i) => all.slice(i, i + 1).reshape([WORDS]));
    const best = {
      encode: Number.POSITIVE_INFINITY,
      commit: Number.POSITIVE_INFINITY,
      device: Number.POSITIVE_INFINITY,
    };
    const note = (name: keyof typeof best, ms: number) => {
      best[name] = Math.min(best[name], ms);
    };
    for (let round = 0; round < ROUNDS; round++) {
      const encoder = device.encoder();
      const start = performance.now();
      for (const out of outs) increment(encoder, order === "in a row" ? { x, out: x } : { x, out });
      const encoded = performance.now();
      const { ms } = await encoder.commit();
      note("encode", encoded - start);
      note("commit", performance.now() - encoded);
      note("device", ms);
    }
    rows[`${n} dispatches, ${order}`] = Object.fromEntries(
      Object.entries(best).map(([name, ms]) => [`${name}, µs each`, Number(((ms * 1000) / n).toFixed(2))]),
    );
  }
console.table(rows);
