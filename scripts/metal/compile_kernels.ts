// Compiles all Metal kernels for the simulator, in one process for each processor. Tests then find them compiled; in
// tests, only as many are compiled at a time as test files run, and some twice.
//   node scripts/run-source.mjs scripts/metal/compile_kernels.ts
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Device, defineLibrary } from "@mlxts/core";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { kernelFiles } from "../../packages/metal-sim/src/kernel_files.ts";
import { root } from "../check/packages.ts";
import { project } from "./kernels.ts";

/** What is compiled at once: a kernel's file, for devices with this value of `MLXTS_METAL_SIM_CHECK`. */
interface Job {
  package: string;
  kernel: string;
  check: "" | "1";
}

/** A device compiles a kernel's file when it is asked for a variant, also for one that does not exist. */
function compile({ package: name, kernel, check }: Job): void {
  process.env.MLXTS_METAL_SIM_CHECK = check;
  using device = Device.open("metal");
  const url = pathToFileURL(join(root, "packages", name, "src", "library.ts")).href;
  device.library(defineLibrary(name, url)).has(kernel, "");
}

/** The files with the most text first, so that no process is left with one of them at the end. */
function jobs(): Job[] {
  const characters = (paths: readonly string[]) =>
    paths.map((path) => readFileSync(join(root, path), "utf8").length).reduce((a, b) => a + b);
  return kernelFiles(project)
    .map((file) => ({ file, size: characters(file.includes) }))
    .sort((a, b) => b.size - a.size)
    .flatMap(({ file }) =>
      (["1", ""] as const).map((check) => ({ package: file.package, kernel: file.kernel, check })),
    );
}

function start(waiting: Job[]): void {
  const child = fork(fileURLToPath(import.meta.url), {
    execArgv: ["--import", SOURCE_HOOKS],
    env: { ...process.env, MLXTS_METAL_SIM: "1" },
  });
  const next = () => {
    const job = waiting.shift();
    if (job) child.send(job);
    else child.disconnect();
  };
  child.on("message", next);
  child.on("exit", (code) => {
    if (code !== 0) process.exitCode = 1;
  });
  next();
}

if (process.send)
  process.on("message", (job: Job) => {
    compile(job);
    process.send?.("done");
  });
else {
  const waiting = jobs();
  for (let i = 0; i < availableParallelism(); i++) start(waiting);
}
