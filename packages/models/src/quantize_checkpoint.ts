import { join } from "node:path";
import {
  checkCallback,
  checkOptionNames,
  checkSignal,
  createSafetensors,
  type Device,
  DTYPES,
  type Dtype,
  openCheckpoint,
  type RawArray,
  Tensor,
  tensorBytes,
  wrongKind,
  wrongValue,
} from "@mlxts/core";
import { type Packing, quantize } from "@mlxts/quant4";
import { checkDirectory, readJson } from "@mlxts/text/node";
import type { NumberArray } from "./cache_rows.ts";
import { checkInside, copyCompanions } from "./companions.ts";
import { checkDevice } from "./device.ts";
import { familyOf } from "./families.ts";
import type { MlxPlan, PlannedTensor } from "./family.ts";
import { elementsOf, sourceTensor } from "./source_tensors.ts";
import { writeDirectory, writeJson } from "./write_directory.ts";

export interface QuantizeOptions {
  /** Default 4. */
  bits?: 4 | 8;
  /** Default 64. */
  groupSize?: 32 | 64 | 128;
  /** Called after each tensor. */
  onProgress?: (done: number, total: number, name: string) => void;
  /** Cancels the work between two tensors; nothing is left behind. */
  signal?: AbortSignal;
}

/** mlx-lm starts a new file when one would pass this many bytes. */
const SHARD_BYTES = 5 * 2 ** 30;
/** Of the layers that predict the tokens after the next one. mlx-lm reads `model*.safetensors` only. */
const NEXT_TOKENS_FILE = "mtp.safetensors";

/** A tensor of a safetensors file. */
interface Entry {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
}

/** A planned tensor and what it becomes in the file. */
interface Item {
  tensor: PlannedTensor;
  entries: readonly Entry[];
}

/** The module of a quantized weight. */
const moduleOf = (name: string) => name.slice(0, -".weight".length);

function entriesOf({ name, dtype, shape, packing }: PlannedTensor): Entry[] {
  if (!packing) return [{ name, dtype, shape }];
  const cols = shape.at(-1) as number;
  const lead = shape.slice(0, -1);
  const groups = [...lead, cols / packing.groupSize];
  return [
    { name, dtype: "u32", shape: [...lead, (cols * packing.bits) / 32] },
    { name: `${moduleOf(name)}.scales`, dtype, shape: groups },
    { name: `${moduleOf(name)}.biases`, dtype, shape: groups },
  ];
}

const bytesOf = (entries: readonly Entry[]) =>
  entries.reduce((sum, { dtype, shape }) => sum + tensorBytes(dtype, shape), 0);

function splitShards(items: readonly Item[]): Item[][] {
  const shards: Item[][] = [[]];
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

/** mlx-lm's names of the files of a checkpoint. */
function shardNames(count: number): string[] {
  if (count === 1) return ["model.safetensors"];
  const digits = (i: number) => String(i).padStart(5, "0");
  return Array.from({ length: count }, (_, i) => `model-${digits(i + 1)}-of-${digits(count)}.safetensors`);
}

/** Elements of the entries of one part of a planned tensor: its own, or packed codes, scales and biases. */
async function convertPart(
  device: Device,
  tensor: PlannedTensor,
  part: number,
  shape: readonly number[],
): Promise<RawArray[]> {
  const { dtype, packing, read } = tensor;
  if (!packing) return [await elementsOf(tensor, part)];
  const source = await read(part);
  const w = source instanceof Tensor ? source : device.tensor(dtype, shape, source as NumberArray);
  const encoder = device.encoder();
  const { weight, scales, biases } = quantize(encoder, { w }, packing);
  await encoder.commit();
  const elements = [await weight.read(), await scales.read(), await biases.read()];
  for (const tensor of [weight, scales, biases]) tensor.dispose();
  if (w !== source) w.dispose();
  return elements;
}

/** Elements of the entries of a planned tensor. */
async function convert(
  device: Device,
  tensor: PlannedTensor,
  entries: readonly Entry[],
  signal: AbortSignal | undefined,
): Promise<RawArray[]> {
  const { shape, parts = 1 } = tensor;
  if (parts === 1) return await convertPart(device, tensor, 0, shape);
  const whole = entries.map(({ dtype, shape }) => new DTYPES[dtype].array(shape.reduce((a, b) => a * b, 1)));
  const partShape = [(shape[0] as number) / parts, ...shape.slice(1)];
  for (let part = 0; part < parts; part++) {
    signal?.throwIfAborted();
    const elements = await convertPart(device, tensor, part, partShape);
    for (const [i, array] of elements.entries())
      (whole[i] as NumberArray).set(array as NumberArray, part * array.length);
  }
  return whole;
}

/** Writes one file; `written` is called after each tensor. */
async function writeShard(
  device: Device,
  path: string,
  items: readonly Item[],
  written: (tensor: PlannedTensor) => void,
  signal: AbortSignal | undefined,
): Promise<void> {
  const writer = createSafetensors(
    path,
    items.flatMap(({ entries }) => entries),
    { format: "mlx" },
  );
  try {
    for (const { tensor, entries } of items) {
      signal?.throwIfAborted();
      const elements = await convert(device, tensor, entries, signal);
      for (const [i, { name }] of entries.entries()) writer.write(name, elements[i] as RawArray);
      written(tensor);
    }
    writer.close();
  } catch (error) {
    writer.abort();
    throw error;
  }
}

const sortedByName = <T>(entries: readonly [string, T][]): Record<string, T> =>
  Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : 1)));

/** What mlx-lm's `config.json` says of the quantization: one setting, and the modules that a family gives one of their own. */
function quantizationJson({ tensors }: MlxPlan, common: Packing): Record<string, unknown> {
  const { bits, groupSize } = common;
  const overrides = tensors.flatMap(({ name, packing }) =>
    packing && packing !== common
      ? [[moduleOf(name), { group_size: packing.groupSize, bits: packing.bits }] as const]
      : [],
  );
  return { group_size: groupSize, bits, mode: "affine", ...Object.fromEntries(overrides) };
}

/** Refuses what is quantized, but for weights in fp8, which some models are published in: these are dequantized. */
function checkOriginal(op: string, { quantization, quantization_config: config }: Record<string, unknown>): void {
  const refuse = (rule: string, value: string, remedy: string) => wrongValue(op, "checkpoint", rule, value, remedy);
  if (quantization == null && config == null) return;
  const { quant_method: method, weight_block_size: block } = (config ?? {}) as Record<string, unknown>;
  if (quantization != null || method !== "fp8")
    throw refuse("not be quantized already", "a quantized checkpoint", "start from the original weights");
  const rule = "have a scale for each block of 128 × 128 weights, where these are in fp8";
  if (String(block) !== "128,128")
    throw refuse(rule, `weight_block_size ${JSON.stringify(block)}`, "start from weights in bf16");
}

/** Checks the arguments that can be wrong by themselves, and completes them. */
function check(op: string, device: Device, from: string, to: string, options: QuantizeOptions) {
  checkDevice(op, device);
  if (typeof to !== "string" || to === "") throw wrongKind(op, "out-dir", "be a path", to);
  checkOptionNames<QuantizeOptions>(op, options, { bits: true, groupSize: true, onProgress: true, signal: true });
  const { bits = 4, groupSize = 64, onProgress, signal } = options;
  checkSignal(op, signal);
  if (bits !== 4 && bits !== 8) throw wrongValue(op, "bits", "be 4 or 8", bits);
  if (![32, 64, 128].includes(groupSize)) throw wrongValue(op, "groupSize", "be 32, 64 or 128", groupSize);
  checkCallback(op, "onProgress", onProgress);
  checkDirectory(op, from, "config.json", "hf-dir");
  checkInside(op, from, join(from, "config.json"));
  return { packing: { bits, groupSize }, onProgress, signal };
}

/**
 * Quantizes a Hugging Face checkpoint directory into a new directory that mlx-lm opens: the same codes, scales and
 * biases that `mlx_lm.convert` makes on a CPU. Linear and embedding weights whose rows are multiples of the group size
 * are quantized, the rest is kept, what is in fp8 (E4M3 with a scale for each block of 128 × 128) as bf16; layers that predict the tokens after the next one go to `mtp.safetensors` as they are,
 * which mlx-lm does not read. The directory, whose parent must exist, appears when it is complete; a failure leaves
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
): Promise<{ tensors: number; byteLength: number }> {
  const op = "quantize";
  const { packing, onProgress, signal } = check(op, device, from, to, options);
  const json = readJson(join(from, "config.json"));
  using checkpoint = await openCheckpoint(device, from, { signal });
  for (const file of new Set(checkpoint.names.map((name) => checkpoint.info(name).file))) checkInside(op, from, file);
  const family = familyOf(op, json);
  checkOriginal(op, json);
  const plan = family.planMlx(checkpoint, json, packing);
  const itemsOf = (tensors: readonly PlannedTensor[]) =>
    tensors.map((tensor): Item => ({ tensor, entries: entriesOf(tensor) }));
  const shards = splitShards(itemsOf(plan.tensors));
  const files = shardNames(shards.length);
  const nextTokens = itemsOf((plan.nextTokens ?? []).map((name) => sourceTensor(checkpoint, name)));
  const byteLength = shards.flat().reduce((sum, { entries }) => sum + bytesOf(entries), 0);
  await writeDirectory(op, "out-dir", to, async (directory) => {
    let done = 0;
    const written = ({ name }: PlannedTensor) => onProgress?.(++done, plan.tensors.length + nextTokens.length, name);
    const write = (file: string, items: readonly Item[]) =>
      writeShard(device, join(directory, file), items, written, signal);
    for (const [i, shard] of shards.entries()) await write(files[i] as string, shard);
    if (nextTokens.length > 0) await write(NEXT_TOKENS_FILE, nextTokens);
    const weightMap = shards.flatMap((shard, i) =>
      shard.flatMap(({ entries }) => entries.map(({ name }): [string, string] => [name, files[i] as string])),
    );
    const quantization = quantizationJson(plan, packing);
    const config = { ...plan.config, quantization, quantization_config: quantization };
    writeJson(join(directory, "config.json"), sortedByName(Object.entries(config)));
    writeJson(join(directory, "model.safetensors.index.json"), {
      metadata: { total_size: byteLength },
      weight_map: sortedByName(weightMap),
    });
    copyCompanions(op, from, directory);
    signal?.throwIfAborted();
  });
  return { tensors: plan.tensors.length, byteLength };
}
