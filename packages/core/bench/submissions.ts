// The time of submitting work: node scripts/run-source.mjs packages/core/bench/submissions.ts
import { Device } from "../src/index.ts";
import { increment } from "../test/kernels/probe.ts";

const ROUNDS = 30;
const DISPATCHES = 200;

/** Least µs of a call, over rounds of `n` calls; `after` runs between rounds, untimed. */
async function least(n: number, call: () => unknown, after?: () => unknown): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    for (let i = 0; i < n; i++) {
      const result = call();
      if (!after) await result;
    }
    best = Math.min(best, ((performance.now() - start) / n) * 1e3);
    await after?.();
  }
  return best;
}

const rows: Record<string, Record<string, number>> = {};
for (const threads of [1, 2]) {
  using device = Device.open("cpu", { threads });
  const empty = device.encoder().finish();
  const note = (name: string, us: number) => {
    rows[name] ??= {};
    rows[name][`${threads} thread${threads > 1 ? "s" : ""}, µs`] = Number(us.toFixed(3));
  };
  note("empty encoder: commit and await", await least(500, () => device.encoder().commit()));
  note(
    "empty encoder: commit, without waiting",
    await least(
      300,
      () => device.encoder().commit(),
      () => empty.replay(),
    ),
  );
  note(
    "empty recording: replay, without waiting",
    await least(
      300,
      () => empty.replay(),
      () => empty.replay(),
    ),
  );

  for (const order of ["independent", "in a row"]) {
    const encoder = device.encoder();
    const shared = device.tensor("u32", [16]);
    for (let i = 0; i < DISPATCHES; i++) {
      const x = order === "in a row" ? shared : device.tensor("u32", [16]);
      increment(encoder, { x, out: x });
    }
    const recording = encoder.finish();
    const wall = await least(100, () => recording.replay());
    let onDevice = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 500; i++) onDevice = Math.min(onDevice, (await recording.replay()).ms * 1e3);
    note(`${DISPATCHES} tiny dispatches, ${order}: replay and await`, wall);
    note(`${DISPATCHES} tiny dispatches, ${order}: each, on the device`, onDevice / DISPATCHES);
  }
}
console.table(rows);
