import { randomUUID } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import {
  checkOptionNames,
  checkSignal,
  createSafetensors,
  type Device,
  type Dtype,
  MlxtsError,
  openCheckpoint,
  type RawArray,
  tensorBytes,
  wrongKind,
  wrongValue,
} from "@mlxts/core";
import { quantize } from "@mlxts/quant4";
import { checkInside, copyCompanions } from "./companions.ts";
import { checkDevice, checkDirectory } from "./directory.ts";
import { readJson } from "./json.ts";
import { addOne, type PlannedTensor, planMlx } from "./mlx_convert.ts";

export interface QuantizeOptions {
  /** Default 4. */
  bits?: 4 | 8;
  /** Default 64. */
  groupSize?: 32 | 64 | 128;
  /** Called after each tensor. */
  onProgress?: (done: number, total: number, name: string) => void;
  /** Ends the work between two tensors; nothing is left behind. */
  signal?: AbortSignal;
}

/** mlx-lm starts a new file when one would pass this many bytes. */
const SHARD_BYTES = 5 * 2 ** 30;

interface Entry {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
}

/** The tensors that a planned one becomes. */
function entriesOf({ name, dtype, shape, quantize }: PlannedTensor, bits: number, groupSize: number): Entry[] {
  if (!quantize) return [{ name, dtype, shape }];
  const [rows, cols] = shape as [number, number];
  const module = name.slice(0, -".weight".length);
  const groups = [rows, cols / groupSize];
  return [
    { name, dtype: "u32", shape: [rows, (cols * bits) / 32] },
    { name: `${module}.scales`, dtype, shape: groups },
    { name: `${module}.biases`, dtype, shape: groups },
  ];
}

/**
 * Quantizes a Hugging Face checkpoint directory into a new directory that mlx-lm opens: the same codes, scales and
 * biases that `mlx_lm.convert` makes on a CPU. Linear and embedding weights whose rows are multiples of the group size
 * are quantized, the rest is kept. The directory, whose parent must exist, appears when it is complete; a failure leaves
 * nothing behind. Files that a symbolic link fetches from outside the checkpoint are refused, as is an output directory
 * that is a symbolic link.
 * @throws MlxtsError `Io`, `Safetensors`; `InvalidArgument` for options, and for checkpoints that cannot be converted; the
 *   reason of `signal` when it is aborted
 */
export async function quantizeCheckpoint(
  device: Device,
  from: string,
  to: string,
  options: QuantizeOptions = {},
): Promise<{ tensors: number; bytes: number }> {
  const op = "quantize";
  checkDevice(op, device);
  if (typeof to !== "string" || to === "") throw wrongKind(op, "out-dir", "be a path", to);
  checkOptionNames<QuantizeOptions>(op, options, { bits: 0, groupSize: 0, onProgress: 0, signal: 0 });
  const { bits = 4, groupSize = 64, onProgress, signal } = options;
  checkSignal(op, signal);
  if (bits !== 4 && bits !== 8) throw wrongValue(op, "bits", "be 4 or 8", bits);
  if (![32, 64, 128].includes(groupSize)) throw wrongValue(op, "groupSize", "be 32, 64 or 128", groupSize);
  if (onProgress !== undefined && typeof onProgress !== "function")
    throw wrongKind(op, "onProgress", "be a function", onProgress);
  checkDirectory(op, from, "config.json", "hf-dir");
  checkInside(op, from, join(from, "config.json"));
  const json = readJson(join(from, "config.json"));
  const target = resolve(to);
  const work = join(dirname(target), `.${basename(target)}.${randomUUID()}.partial`);
  using checkpoint = openCheckpoint(device, from);
  for (const file of new Set(checkpoint.names.map((name) => checkpoint.info(name).file))) checkInside(op, from, file);
  const plan = planMlx(checkpoint, json, groupSize);
  const shards = splitShards(plan.tensors.map((tensor) => ({ tensor, entries: entriesOf(tensor, bits, groupSize) })));
  const fileOf = (i: number) =>
    shards.length === 1
      ? "model.safetensors"
      : `model-${String(i + 1).padStart(5, "0")}-of-${String(shards.length).padStart(5, "0")}.safetensors`;
  let made = false;
  try {
    if (occupied(target)) throw wrongValue(op, "out-dir", "be new or an empty directory", to);
    mkdirSync(work);
    made = true;
    let done = 0;
    for (const [i, shard] of shards.entries()) {
      const writer = createSafetensors(
        join(work, fileOf(i)),
        shard.flatMap(({ entries }) => entries),
        { format: "mlx" },
      );
      try {
        for (const { tensor, entries } of shard) {
          signal?.throwIfAborted();
          const parts = await convert(device, checkpoint.tensor(tensor.source), tensor, bits, groupSize);
          for (const [j, entry] of entries.entries()) writer.write(entry.name, parts[j] as RawArray);
          onProgress?.(++done, plan.tensors.length, tensor.name);
        }
        writer.close();
      } catch (error) {
        writer.abort();
        throw error;
      }
    }
    const weightMap = shards.flatMap((shard, i) =>
      shard.flatMap(({ entries }) => entries.map(({ name }): [string, string] => [name, fileOf(i)])),
    );
    const bytes = shards.flat().reduce((sum, { entries }) => sum + bytesOf(entries), 0);
    const quantization = { group_size: groupSize, bits, mode: "affine" };
    const sorted = Object.entries({ ...plan.config, quantization, quantization_config: quantization }).sort(
      ([a], [b]) => (a < b ? -1 : 1),
    );
    writeJson(join(work, "config.json"), Object.fromEntries(sorted));
    writeJson(join(work, "model.safetensors.index.json"), {
      metadata: { total_size: bytes },
      weight_map: Object.fromEntries(weightMap.sort(([a], [b]) => (a < b ? -1 : 1))),
    });
    copyCompanions(op, from, work);
    signal?.throwIfAborted();
    // Fails if somebody has put files there meanwhile.
    if (existsSync(target)) rmdirSync(target);
    renameSync(work, target);
    return { tensors: plan.tensors.length, bytes };
  } catch (error) {
    if (made) rmSync(work, { recursive: true, force: true });
    if (error instanceof Error && "syscall" in error)
      throw new MlxtsError("Io", `${op}: ${error.message}`, { path: to, operation: "write" }, error);
    throw error;
  }
}

/** Whether something stands where a new directory is to be; a symbolic link is not followed. */
function occupied(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found !== undefined && (!found.isDirectory() || readdirSync(path).length > 0);
}

const bytesOf = (entries: readonly Entry[]) =>
  entries.reduce((sum, { dtype, shape }) => sum + tensorBytes(dtype, shape), 0);

function splitShards<T extends { entries: readonly Entry[] }>(items: readonly T[]): T[][] {
  const shards: T[][] = [[]];
  let size = 0;
  for (const item of items) {
    const bytes = bytesOf(item.entries);
    if (size > 0 && size + bytes > SHARD_BYTES) {
      shards.push([]);
      size = 0;
    }
    shards.at(-1)?.push(item);
    size += bytes;
  }
  return shards;
}

async function convert(
  device: Device,
  source: ReturnType<ReturnType<typeof openCheckpoint>["tensor"]>,
  plan: PlannedTensor,
  bits: 4 | 8,
  groupSize: 32 | 64 | 128,
): Promise<RawArray[]> {
  if (!plan.quantize) {
    const data = await source.read();
    return [plan.addOne ? addOne(plan.dtype, data) : data];
  }
  const encoder = device.encoder();
  const { weight, scales, biases } = quantize(encoder, { w: source }, { bits, groupSize });
  await encoder.commit();
  const parts = [await weight.read(), await scales.read(), await biases.read()];
  for (const tensor of [weight, scales, biases]) tensor.dispose();
  return parts;
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(path, JSON.stringify(value, null, 4));
}
