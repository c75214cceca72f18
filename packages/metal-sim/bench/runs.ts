// What a simulated run costs in each build, from start to end and for each GPU thread: pnpm --filter @mlxts/metal-sim bench.
// The least of several runs of examples/rms_norm.metal.
import { fileURLToPath } from "node:url";
import { type Build, compile, run } from "../src/index.ts";

const RUNS = 5;
const [ROWS, DIM, THREADS] = [64, 4096, 256];
const path = fileURLToPath(new URL("../examples/rms_norm.metal", import.meta.url));
const params = new DataView(new ArrayBuffer(8));
params.setUint32(0, DIM, true);
params.setFloat32(4, 1e-6, true);

async function milliseconds(build: Build, threadgroups: number): Promise<number> {
  const program = compile({ path }, build);
  let least = Number.POSITIVE_INFINITY;
  // The first run may have to compile the runner.
  for (let i = 0; i <= RUNS; i++) {
    const x = new Float32Array(ROWS * DIM).fill(1);
    const dispatch = {
      kernel: "rms_norm_f32",
      threadgroups: [threadgroups],
      threadsPerThreadgroup: [THREADS],
      bindings: {
        x: { buffer: "x" },
        weight: { buffer: "weight" },
        out: { buffer: "out" },
        p: { bytes: params },
      },
      threadgroupBytes: { partial: 32 },
    };
    const started = performance.now();
    const { reports } = await run(program, {
      buffers: { x, weight: new Float32Array(DIM).fill(1), out: new Float32Array(ROWS * DIM) },
      dispatches: [dispatch],
    });
    if (reports.length > 0) throw new Error(reports[0]?.message);
    if (i > 0) least = Math.min(least, performance.now() - started);
  }
  return least;
}

const rows: Record<string, Record<string, number>> = {};
for (const build of ["fast", "check", "coverage"] as const) {
  const [one, all] = [await milliseconds(build, 1), await milliseconds(build, ROWS)];
  rows[build] = {
    "one threadgroup, ms": Math.round(one),
    "each thread more, µs": Number((((all - one) * 1000) / ((ROWS - 1) * THREADS)).toFixed(2)),
  };
}
console.table(rows);
