// Benchmarks of two checkouts in one process, in turn: npm run bench:compare -- --other ../checkout [--package nn]
// [--case "f32 chunk"] [--threads 1] [--rounds 5]. Each round opens both devices anew, so that chance in where memory lies
// averages out; a checkout against a copy of itself shows how much is left. Both need their native code.
import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import type { Device, Recording } from "@mlxts/core";
import type { Bench, BenchCase } from "@mlxts/core/testing";

const { values } = parseArgs({
  options: {
    other: { type: "string" },
    package: { type: "string" },
    case: { type: "string" },
    threads: { type: "string", default: "1" },
    rounds: { type: "string", default: "5" },
  },
});
if (!values.other) throw new Error("--other must be the folder of another checkout");
const here = fileURLToPath(new URL("../..", import.meta.url));
/** The other checkout is what this one is compared with. */
const roots = [resolve(values.other), here];
const threads = Number(values.threads);
const rounds = Number(values.rounds);

const load = (root: string, path: string) => import(pathToFileURL(join(root, "packages", path)).href);
const cores = (await Promise.all(roots.map((root) => load(root, "core/src/index.ts")))) as {
  Device: typeof Device;
}[];

/** Milliseconds that one round measures at least, and those of one recording. */
const ROUND_MS = 400;
const RECORDING_MS = 8;

/** The least µs of a call in each checkout. */
async function round(cases: readonly BenchCase[], order: readonly number[]): Promise<number[]> {
  const devices = cores.map((core) => core.Device.open("cpu", { threads }));
  const recordings: Recording[] = [];
  let calls = 0;
  for (const i of order) {
    const device = devices[i] as Device;
    const { encode } = await (cases[i] as BenchCase).setup(device);
    const record = (count: number) => {
      const encoder = device.encoder();
      for (let call = 0; call < count; call++) encode(encoder);
      return encoder.finish();
    };
    if (calls === 0) {
      const one = record(1);
      await one.replay();
      const start = performance.now();
      await one.replay();
      calls = Math.max(1, Math.min(3000, Math.ceil(RECORDING_MS / (performance.now() - start))));
    }
    recordings[i] = record(calls);
    await recordings[i]?.replay();
  }
  const least = roots.map(() => Number.POSITIVE_INFINITY);
  const start = performance.now();
  for (let sample = 0; sample < 4 || performance.now() - start < ROUND_MS; sample++) {
    for (const i of sample % 2 ? [...order].reverse() : order) {
      const begin = performance.now();
      await recordings[i]?.replay();
      least[i] = Math.min(least[i] as number, ((performance.now() - begin) * 1000) / calls);
    }
  }
  for (const device of devices) device.dispose();
  return least;
}

process.stdout.write("| case | other µs | this µs | this / other |\n| --- | --- | --- | --- |\n");
for (const name of values.package ? [values.package] : readdirSync(join(here, "packages"))) {
  const folder = join(here, "packages", name, "bench");
  const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(".bench.ts")) : [];
  for (const file of files) {
    if (!existsSync(join(roots[0] as string, "packages", name, "bench", file))) continue;
    const benches = (await Promise.all(roots.map((root) => load(root, `${name}/bench/${file}`)))) as {
      default: Bench;
    }[];
    const [other, own] = benches.map((bench) => bench.default);
    for (const testCase of own?.cases ?? []) {
      const label = `${own?.op} ${testCase.name}`;
      const otherCase = other?.cases.find((candidate) => candidate.name === testCase.name);
      if (!otherCase || !label.includes(values.case ?? "")) continue;
      const results: number[][] = [];
      for (let i = 0; i < rounds; i++) results.push(await round([otherCase, testCase], i % 2 ? [1, 0] : [0, 1]));
      const best = roots.map((_, i) => Math.min(...results.map((least) => least[i] as number)));
      const ratios = results.map(([a, b]) => (b as number) / (a as number)).sort((a, b) => a - b);
      const cells = [label, ...best.map((us) => us.toFixed(2)), (ratios[ratios.length >> 1] as number).toFixed(3)];
      process.stdout.write(`| ${cells.join(" | ")} |\n`);
    }
  }
}
process.exit(0);
