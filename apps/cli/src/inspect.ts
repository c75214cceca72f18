import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Checkpoint, Device, MlxtsError, openCheckpoint } from "@mlxts/core";
import { loadModel, readOptionalJson, Tokenizer } from "@mlxts/models";
import { type Quantization, quantizationOf } from "@mlxts/quant4";
import { argument, command } from "./contract.ts";
import { flag, inLine } from "./options.ts";
import { countParameters, type Parameters } from "./parameters.ts";

/** A name from the file, with control characters escaped. */
const plain = (text: string) =>
  JSON.stringify(text)
    .slice(1, -1)
    .replace(/[\u007f-\u009f]/g, "?");

/** A value, or the reason why there is none. */
type Known<T> = { value: T; reason?: undefined } | { value?: undefined; reason: string };

function attempt<T>(read: () => T): Known<T> {
  try {
    return { value: read() };
  } catch (error) {
    return { reason: inLine((error as Error).message) };
  }
}

const hasTokenizer = (path: string) => existsSync(join(path, "tokenizer.json"));

/** Why a checkpoint cannot be run, in the words of `generate`; null when it can. */
async function whyNot(device: Device, path: string, signal: AbortSignal): Promise<string | null> {
  if (!statSync(path).isDirectory()) return "it is a single file; a model is a directory with config.json";
  try {
    (await loadModel(device, path, { signal })).dispose();
    if (hasTokenizer(path)) new Tokenizer(path);
    return null;
  } catch (error) {
    return inLine((error as Error).message);
  }
}

const fromIdsOnly = (path: string) => (hasTokenizer(path) ? "" : ", but from token ids only: it has no tokenizer.json");

function dtypesOf(checkpoint: Checkpoint): Record<string, number> {
  const dtypes: Record<string, number> = {};
  for (const name of checkpoint.names) {
    const { storedDtype } = checkpoint.info(name);
    dtypes[storedDtype] = (dtypes[storedDtype] ?? 0) + 1;
  }
  return dtypes;
}

const count = (value: number) => value.toLocaleString("en");

function sizeText(bytes: number): string {
  const unit = Math.min(4, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  const short = `${(bytes / 1024 ** unit).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  return unit === 0 ? `${bytes} bytes` : `${count(bytes)} bytes (${short})`;
}

/** One line for each way in which modules are quantized. */
function quantizedLines(quantization: Known<Quantization | undefined>, parameters: Known<Parameters>): string[] {
  if (quantization.reason !== undefined) return [`unknown: ${quantization.reason}`];
  if (!quantization.value) return [parameters.value ? "no" : "unknown"];
  const { bits, groupSize, mode } = quantization.value;
  const kinds = parameters.value?.groups ?? [];
  if (kinds.length === 0) return [`${bits} bits, groups of ${groupSize}, ${mode}`];
  return kinds.map(
    (kind) =>
      `${kind.bits} bits, groups of ${kind.groupSize}, ${mode}: ` +
      `${count(kind.weights)} weights in ${count(kind.groups)} groups, ${kind.modules} module${kind.modules === 1 ? "" : "s"}`,
  );
}

/** Collects everything that is shown of a checkpoint. */
async function inspected(device: Device, checkpoint: Checkpoint, path: string, signal: AbortSignal) {
  const file = attempt(() => (statSync(path).isDirectory() ? readOptionalJson(path, "config.json") : undefined));
  const config = file.value;
  const quantization = attempt(() => config && quantizationOf(config));
  const parameters: Known<Parameters> =
    quantization.reason === undefined
      ? attempt(() => countParameters(checkpoint, quantization.value))
      : { reason: quantization.reason };
  const reason = await whyNot(device, path, signal);
  signal.throwIfAborted();
  return {
    path,
    config,
    hasConfig: config !== undefined || file.reason !== undefined,
    /** Why it cannot be run, or null. */
    reason,
    quantization,
    parameters,
    tensors: checkpoint.names.map((name) => ({ name, ...checkpoint.info(name) })),
    dtypes: dtypesOf(checkpoint),
    byteLength: checkpoint.byteLength,
    metadata: checkpoint.metadata,
  };
}

type Inspected = Awaited<ReturnType<typeof inspected>>;

function jsonOf({ path, config, reason, quantization, parameters, tensors, ...rest }: Inspected, listed: boolean) {
  const { overrides: _, ...common } = quantization.value ?? { overrides: undefined };
  return {
    path,
    modelType: config?.model_type ?? null,
    runs: reason === null,
    reason,
    tensors: tensors.length,
    parameters: parameters.value?.total ?? null,
    elements: tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
    bytes: rest.byteLength,
    dtypes: rest.dtypes,
    quantization: quantization.value ? { ...common, kinds: parameters.value?.groups ?? null } : null,
    metadata: rest.metadata,
    ...(listed && { list: tensors }),
    config,
  };
}

function textOf({ path, config, reason, quantization, parameters, tensors, ...rest }: Inspected, listed: boolean) {
  const types = Object.entries(rest.dtypes).map(([dtype, number]) => `${number} ${dtype}`);
  const [quantized, ...more] = quantizedLines(quantization, parameters);
  const lines = [
    `checkpoint  ${inLine(path)}`,
    `model type  ${rest.hasConfig ? plain(String(config?.model_type ?? "unknown")) : "(no config.json)"}`,
    `runs        ${reason === null ? `yes, with mlxts${fromIdsOnly(path)}` : `no, because ${reason}`}`,
    `parameters  ${parameters.value ? count(parameters.value.total) : `unknown: ${parameters.reason}`}`,
    `quantized   ${quantized}`,
    ...more.map((line) => `            ${line}`),
    `tensors     ${tensors.length} (${types.join(", ")})`,
    `on disk     ${sizeText(rest.byteLength)}`,
  ];
  if (listed)
    for (const { name, storedDtype, shape } of tensors)
      lines.push(`  ${storedDtype.padEnd(4)} [${shape.join(", ")}]  ${plain(name)}`);
  return `${lines.join("\n")}\n`;
}

export const inspect = command({
  name: "inspect",
  summary: "Show what a checkpoint holds, and whether its model can be run.",
  arguments: { checkpoint: argument("a checkpoint directory, or one .safetensors file") },
  options: { tensors: flag("list every tensor"), json: flag("print JSON") },
  async run({ checkpoint: path, tensors: listed, json }, signal) {
    if (!existsSync(path)) throw new MlxtsError("Io", `inspect: ${path} does not exist`, { path, operation: "open" });
    using device = Device.open("cpu");
    using checkpoint = openCheckpoint(device, path);
    const found = await inspected(device, checkpoint, path, signal);
    process.stdout.write(json ? `${JSON.stringify(jsonOf(found, listed), null, 2)}\n` : textOf(found, listed));
  },
});
