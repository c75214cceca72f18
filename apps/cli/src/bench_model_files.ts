// The files of a model of random weights, for as long as it is measured.
import { mkdtempSync, rmSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { MlxtsError } from "@mlxts/core";
import type { ModelShape } from "./bench_shapes.ts";
import { checkpointBytes, writeRandomCheckpoint } from "./random_checkpoint.ts";
import { randomGgufBytes, writeRandomGguf } from "./random_gguf.ts";

/** Room that is left for other files. */
const SPARE_BYTES = 64 * 2 ** 20;

/** Refuses a model for which the folder has no room. */
export function checkRoom(folder: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  if (free >= bytes + SPARE_BYTES) return;
  const inMb = (value: number) => `${Math.ceil(value / 1e6)} MB`;
  const text =
    `bench model: the model needs ${inMb(bytes + SPARE_BYTES)}, but ${folder} has room for ${inMb(free)} — ` +
    "give another --folder, or fewer --layers";
  throw new MlxtsError("Io", text, { path: folder, operation: "write" });
}

/** A folder that is removed at the end, however the process ends. */
export function temporaryFolder(inside: string, keep: boolean): { path: string; remove: () => void } {
  const path = mkdtempSync(join(inside, "mlxts-bench-"));
  if (keep) return { path, remove: () => undefined };
  const remove = () => {
    process.off("exit", remove);
    rmSync(path, { recursive: true, force: true });
  };
  process.on("exit", remove);
  return { path, remove };
}

/** Writes the model of a shape, and the same for llama.cpp where that is measured: the path of that file. */
export async function writeModel(folder: string, shape: ModelShape, seed: number, peer: boolean, signal: AbortSignal) {
  const check = async () => {
    // Signals are heard between two pieces.
    await new Promise((done) => setImmediate(done));
    signal.throwIfAborted();
  };
  checkRoom(folder, checkpointBytes(shape) + (peer ? randomGgufBytes(shape) : 0));
  await writeRandomCheckpoint(folder, shape, seed, check);
  const gguf = join(folder, "model.gguf");
  if (peer) await writeRandomGguf(gguf, shape, seed, check);
  return peer ? gguf : undefined;
}
