import { existsSync, statSync } from "node:fs";
import { type Checkpoint, Device, MlxtsError, openCheckpoint } from "@mlxts/core";
import {
  type ActivationDtype,
  loadModel,
  type ModelSizes,
  readOptionalJson,
  type StateMemory,
  Tokenizer,
} from "@mlxts/models";
import { type Quantization, quantizationOf } from "@mlxts/quant4";
import { activationDtype } from "./activation_option.ts";
import { argument, command } from "./contract.ts";
import { hasTokenizer } from "./load_model.ts";
import { flag, inLine, integer } from "./options.ts";
import { activeParameters, countParameters, type Parameters } from "./parameters.ts";

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

/** What running a model takes. */
interface Run {
  sizes: ModelSizes;
  activationDtype: string;
  /** Weights that take part in computing one token, where they could be counted. */
  active: number | undefined;
  /** Tokens that the memory is for. */
  context: number;
  sequences: number;
  state: StateMemory;
  weightBytes: number;
}

/** What is asked about running the model. */
interface RunOptions {
  context: number | undefined;
  sequences: number;
  activationDtype: ActivationDtype;
}

/** What running a checkpoint takes, or why it cannot be run, in the words of `generate`. */
async function runOf(
  device: Device,
  path: string,
  parameters: Known<Parameters>,
  { context: asked, sequences, activationDtype: askedDtype }: RunOptions,
  signal: AbortSignal,
): Promise<Known<Run>> {
  if (!statSync(path).isDirectory()) return { reason: "it is a single file; a model is a directory with config.json" };
  try {
    using model = await loadModel(device, path, { signal, activationDtype: askedDtype });
    if (hasTokenizer(path)) new Tokenizer(path);
    const { sizes, activationDtype, weightBytes } = model;
    const context = asked ?? model.contextLength;
    const state = model.stateMemory({ capacity: context, sequences });
    const active = parameters.value && activeParameters(parameters.value, model);
    return {
      value: { sizes, activationDtype, active, context, sequences, state, weightBytes },
    };
  } catch (error) {
    return { reason: inLine((error as Error).message) };
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

/** The lines about running a model; titles take twelve columns. */
function runLines({ sizes, active, activationDtype, context, sequences, state, weightBytes }: Run): string[] {
  const { experts, latents } = sizes;
  const layers = (number: number) => `${number} layer${number === 1 ? "" : "s"}`;
  const fixed = state.perSequence > 0 ? `, and ${sizeText(state.perSequence)} for each sequence` : "";
  const each = sequences === 1 ? "" : `${count(sequences)} sequences of `;
  return [
    ...(experts
      ? [
          `experts     ${count(experts.count)} in each of ${layers(experts.layers)}, of which a token goes to ` +
            `${experts.perToken}${experts.shared ? ", and to shared experts" : ""}`,
        ]
      : []),
    ...(active !== undefined && experts ? [`active      ${count(active)} parameters for each token`] : []),
    ...(latents
      ? [
          `latents     ${latents.width} numbers for each token, and a rotated key of ${latents.rotated}, in ${layers(latents.layers)}`,
        ]
      : []),
    `cache       ${sizeText(state.perToken)} for each token${fixed}, with ${activationDtype} activations`,
    `memory      ${sizeText(weightBytes + state.total)} for ${each}${count(context)} tokens: ` +
      `weights, and ${sizeText(state.total)} of state`,
  ];
}

/**
 * The config of a checkpoint, or why it is none.
 * @throws MlxtsError `Io` when it is there and cannot be read
 */
function configOf(path: string): Known<Record<string, unknown> | undefined> {
  try {
    return { value: statSync(path).isDirectory() ? readOptionalJson(path, "config.json") : undefined };
  } catch (error) {
    if (!(error instanceof MlxtsError) || error.details.operation !== "parse") throw error;
    return { reason: inLine(error.message) };
  }
}

/** Collects everything that is shown of a checkpoint. */
async function inspected(
  device: Device,
  checkpoint: Checkpoint,
  path: string,
  options: RunOptions,
  signal: AbortSignal,
) {
  const file = configOf(path);
  const config = file.value;
  const quantization = attempt(() => config && quantizationOf(config));
  const parameters: Known<Parameters> =
    quantization.reason === undefined
      ? attempt(() => countParameters(checkpoint, quantization.value))
      : { reason: quantization.reason };
  const run = await runOf(device, path, parameters, options, signal);
  signal.throwIfAborted();
  return {
    path,
    config,
    hasConfig: config !== undefined || file.reason !== undefined,
    run,
    quantization,
    parameters,
    tensors: checkpoint.names.map((name) => ({ name, ...checkpoint.info(name) })),
    dtypes: dtypesOf(checkpoint),
    byteLength: checkpoint.byteLength,
    metadata: checkpoint.metadata,
  };
}

type Inspected = Awaited<ReturnType<typeof inspected>>;

/** The same for JSON; null where it is unknown. */
const runJson = (run: Run | undefined) => ({
  experts: run?.sizes.experts ?? null,
  activeParameters: run?.active ?? null,
  latents: run?.sizes.latents ?? null,
  cache: run ? { bytesPerToken: run.state.perToken, bytesPerSequence: run.state.perSequence } : null,
  memory: run
    ? {
        context: run.context,
        sequences: run.sequences,
        activationDtype: run.activationDtype,
        weightBytes: run.weightBytes,
        stateBytes: run.state.total,
      }
    : null,
});

function jsonOf({ path, config, run, quantization, parameters, tensors, ...rest }: Inspected, listed: boolean) {
  const { overrides: _, ...common } = quantization.value ?? { overrides: undefined };
  return {
    path,
    modelType: config?.model_type ?? null,
    runs: run.value !== undefined,
    reason: run.reason ?? null,
    tensors: tensors.length,
    parameters: parameters.value?.total ?? null,
    elements: tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
    bytes: rest.byteLength,
    dtypes: rest.dtypes,
    quantization: quantization.value ? { ...common, kinds: parameters.value?.groups ?? null } : null,
    ...runJson(run.value),
    metadata: rest.metadata,
    ...(listed && { list: tensors }),
    config,
  };
}

function textOf({ path, config, run, quantization, parameters, tensors, ...rest }: Inspected, listed: boolean) {
  const types = Object.entries(rest.dtypes).map(([dtype, number]) => `${number} ${dtype}`);
  const [quantized, ...more] = quantizedLines(quantization, parameters);
  const lines = [
    `checkpoint  ${inLine(path)}`,
    `model type  ${rest.hasConfig ? plain(String(config?.model_type ?? "unknown")) : "(no config.json)"}`,
    `runs        ${run.value ? `yes, with mlxts${fromIdsOnly(path)}` : `no, because ${run.reason}`}`,
    `parameters  ${parameters.value ? count(parameters.value.total) : `unknown: ${parameters.reason}`}`,
    `quantized   ${quantized}`,
    ...more.map((line) => `            ${line}`),
    `tensors     ${tensors.length} (${types.join(", ")})`,
    `on disk     ${sizeText(rest.byteLength)}`,
    ...(run.value ? runLines(run.value) : []),
  ];
  if (listed)
    for (const { name, storedDtype, shape } of tensors)
      lines.push(`  ${storedDtype.padEnd(4)} [${shape.join(", ")}]  ${plain(name)}`);
  return `${lines.join("\n")}\n`;
}

export const inspect = command({
  name: "inspect",
  summary: "Show what a checkpoint holds, whether its model can be run, and the memory that takes.",
  arguments: { checkpoint: argument("a checkpoint directory, or one .safetensors file") },
  options: {
    context: integer("<n>", "tokens to show the memory for; default: the model's context", { min: 1, max: 2 ** 24 }),
    sequences: integer("<n>", "sequences side by side", { min: 1, max: 65536, default: 1 }),
    activationDtype,
    tensors: flag("list every tensor"),
    json: flag("print JSON"),
  },
  async run({ checkpoint: path, tensors: listed, json, ...options }, signal) {
    if (!existsSync(path)) throw new MlxtsError("Io", `inspect: ${path} does not exist`, { path, operation: "open" });
    using device = Device.open("cpu");
    using checkpoint = await openCheckpoint(device, path);
    const found = await inspected(device, checkpoint, path, options, signal);
    process.stdout.write(json ? `${JSON.stringify(jsonOf(found, listed), null, 2)}\n` : textOf(found, listed));
  },
});
