// How long commands take from start to end, on the tiny checkpoint: pnpm --filter mlxts bench. The least of several runs.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const RUNS = 5;
const program = fileURLToPath(new URL("../bin/mlxts.mjs", import.meta.url));
const tiny = fileURLToPath(new URL("../../../fixtures/tiny-qwen3.5", import.meta.url));
const COMMANDS = [
  ["help"],
  ["devices"],
  ["inspect", tiny],
  ["op", "--list"],
  ["generate", tiny, "--prompt", "export ", "--max-tokens", "1"],
  ["generate", tiny, "--prompt", "export ", "--max-tokens", "400"],
];

const rows = COMMANDS.map((args) => {
  let ms = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS; run++) {
    const started = performance.now();
    const { status, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: "utf8" });
    if (status !== 0) throw new Error(stderr);
    ms = Math.min(ms, performance.now() - started);
  }
  return { command: args.map((arg) => (arg === tiny ? "tiny" : arg)).join(" "), ms: Math.round(ms) };
});
console.table(rows);
