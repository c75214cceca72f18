import { accessSync, constants, readdirSync, statSync } from "node:fs";
import { getPriority, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DEVICE_KINDS, type FloatDtype, MlxtsError } from "@mlxts/core";
import { approximate } from "./activation_option.ts";
import { temporaryFolder, writeModel } from "./bench_model_files.ts";
import { type Engines, measureModel } from "./bench_model_run.ts";
import { REPORT_OPTIONS, reportHead, reportWriter } from "./bench_output.ts";
import { digits } from "./bench_report.ts";
import { MODEL_SHAPES, type ModelShape } from "./bench_shapes.ts";
import { command, optionalArgument } from "./contract.ts";
import { endSoonAfter } from "./interrupt.ts";
import { choice, counts, flag, integer, names, path, text, UsageError } from "./options.ts";
import { progressBar } from "./progress.ts";

const NAME = "bench model";
const SHAPES = Object.keys(MODEL_SHAPES) as (keyof typeof MODEL_SHAPES)[];
const DTYPES = ["f32", "f16", "bf16"] as const;

interface Given {
  checkpoint: string | undefined;
  shape: keyof typeof MODEL_SHAPES | undefined;
  layers: number | undefined;
  vocab: number | undefined;
  folder: string | undefined;
  keep: boolean;
  gguf: string | undefined;
  llamaBench: string | undefined;
}

/** Refuses options that do not go together. */
function checkTogether({ checkpoint, shape, gguf, llamaBench, ...rest }: Given): void {
  const refuse = (argument: string, rule: string, value: string, remedy?: string): never => {
    throw new UsageError(NAME, argument, rule, value, remedy);
  };
  if ((checkpoint === undefined) === (shape === undefined))
    refuse("[checkpoint], --shape", "be given, exactly one of them", shape ? `${checkpoint} and --shape` : "nothing");
  for (const name of ["layers", "vocab", "folder"] as const)
    if (shape === undefined && rest[name] !== undefined)
      refuse(`--${name}`, "be given with --shape only", String(rest[name]));
  if (shape === undefined && rest.keep) refuse("--keep", "be given with --shape only", "it with a checkpoint");
  if (gguf !== undefined && llamaBench === undefined) refuse("--gguf", "be given with --llama-bench only", gguf);
  if (gguf !== undefined && shape !== undefined)
    refuse("--gguf", "be given with a checkpoint only", gguf, "a file of the shape is made");
  if (llamaBench !== undefined && shape === undefined && gguf === undefined)
    refuse("--gguf", "be given, for --llama-bench", "nothing", "the same model as a GGUF file");
}

function dtypesOf(given: readonly string[] | undefined): FloatDtype[] {
  const list = given ?? ["bf16", "f32"];
  return list.map((name) => {
    const found = DTYPES.find((dtype) => dtype === name);
    if (!found)
      throw new UsageError(NAME, "--activation-dtype", `be names of ${DTYPES.join(", ")}, separated by commas`, name);
    return found;
  });
}

function checkFile(argument: string, file: string, mode: number, rule: string): void {
  try {
    if (!statSync(file).isFile()) throw new Error();
    accessSync(file, mode);
  } catch {
    const text = `${NAME}: \`${argument}\` must be ${rule}, got ${file}`;
    throw new MlxtsError("Io", text, { path: file, operation: "open" });
  }
}

function checkInputs({ checkpoint, folder, gguf, llamaBench }: Given): void {
  const missing = (argument: string, path: string) =>
    new MlxtsError("Io", `${NAME}: \`${argument}\` must be a directory, got ${path}`, { path, operation: "open" });
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  if (checkpoint !== undefined && !isFolder(checkpoint)) throw missing("[checkpoint]", checkpoint);
  if (folder !== undefined && !isFolder(folder)) throw missing("--folder", folder);
  if (llamaBench !== undefined) checkFile("--llama-bench", llamaBench, constants.X_OK, "a program that can be run");
  if (gguf !== undefined) checkFile("--gguf", gguf, constants.R_OK, "a file that can be read");
}

/** Weights of fewer bytes stay in caches: a step is not limited by memory, and what is made once outweighs what is measured. */
const LEAST_WITH_TARGETS = 64 * 2 ** 20;

const weightBytes = (checkpoint: string) =>
  readdirSync(checkpoint)
    .filter((name) => name.endsWith(".safetensors"))
    .reduce((sum, name) => sum + statSync(join(checkpoint, name)).size, 0);

export const benchModel = command({
  name: NAME,
  summary: "Measure prefill, decode and memory of a model, beside llama.cpp where it is installed.",
  arguments: { checkpoint: optionalArgument("a checkpoint directory, unless --shape is given") },
  options: {
    shape: choice("<name>", "a model of random weights, 4 bits, with the sizes of", SHAPES),
    layers: integer("<n>", "layers of --shape; default: the model's, 4 of qwen3-next", { min: 1, max: 512 }),
    vocab: integer("<n>", "tokens that --shape knows; default: the model's", { min: 64, max: 2 ** 20 }),
    seed: integer("<n>", "seed of random weights", { min: 0, max: 0xffffffff, default: 1 }),
    folder: path("<dir>", "where to write the model of --shape; default: the system's temporary folder"),
    keep: flag("do not remove the model of --shape"),
    llamaBench: path("<file>", "llama.cpp's llama-bench, which is measured in turns with mlxts"),
    gguf: path("<file>", "the checkpoint's model for llama-bench; of --shape it is made"),
    device: choice("<kind>", "where to measure; on a GPU without threads and memory", DEVICE_KINDS, "cpu"),
    threads: counts("numbers of threads", [1, 2]),
    activationDtype: names("<list>", "dtypes of activations; f32, f16, bf16 (default bf16,f32)"),
    approximate,
    prefill: counts("tokens of prompts", [512, 4096]),
    decodeAfter: counts("tokens before those that are decoded", [512, 16384], 0),
    tokens: integer("<n>", "tokens to decode in one measurement", { min: 1, max: 65536, default: 48 }),
    rounds: integer("<n>", "times that all is measured", { min: 1, max: 1000, default: 3 }),
    runWith: text("<command>", 'starts each measurement, as "taskset -c 0,1"; words separated by spaces'),
    ...REPORT_OPTIONS,
  },
  notes: [
    "Each measurement runs in a process of its own, mlxts and llama-bench in turn. llama-bench decodes after more than 4096",
    "tokens once only: it feeds them all; mlxts fills its caches. Beside a GPU it computes all layers there.",
  ],
  async run({ seed, json, html, keep, runWith, approximate, ...given }, signal) {
    endSoonAfter(signal);
    checkTogether({ ...given, keep });
    const dtypes = dtypesOf(given.activationDtype);
    checkInputs({ ...given, keep });
    const write = reportWriter(NAME, { json, html });
    const head = reportHead("mlxts bench model", given.device);
    const shape = given.shape && shapeOf(given.shape, given);
    const made = shape && temporaryFolder(resolve(given.folder ?? tmpdir()), keep);
    const bar = progressBar();
    try {
      const { llamaBench } = given;
      const peer = llamaBench !== undefined;
      const gguf = shape && made ? await writeModel(made.path, shape, seed, peer, signal) : given.gguf;
      const checkpoint = made?.path ?? (given.checkpoint as string);
      const llama = peer && gguf !== undefined ? { program: llamaBench, gguf } : undefined;
      const { device, decodeAfter: after, prefill, rounds, tokens } = given;
      const words = runWith?.trim().split(/\s+/) ?? [];
      const engines: Engines = { checkpoint, device, dtypes, approximate, llama, runWith: words };
      const onCpu = device === "cpu";
      const threads = onCpu ? given.threads : [1];
      const isWhole = given.layers === undefined && given.vocab === undefined;
      // They are for exact products.
      const hasPeerTargets = onCpu && given.shape === "qwen3.5-0.8b" && isWhole && approximate === undefined;
      const load = `load ${(loadavg()[0] as number).toFixed(1)} at the start`;
      const hasTargets = weightBytes(checkpoint) >= LEAST_WITH_TARGETS;
      const plan = { threads, prefill, after, tokens, rounds, hasTargets, hasPeerTargets };
      const { rows, limits, memoryGBs, versions, processors } = await measureModel(engines, plan, bar.show, signal);
      bar.stop();
      const settings = {
        ...(approximate && { approximate }),
        ...(!onCpu && { memory: `${digits(memoryGBs)} GB/s, measured` }),
        model: `${modelText({ ...given, keep }, shape, seed)}${keep ? `, kept in ${checkpoint}` : ""}`,
        ...(!hasTargets && { targets: "none: the weights stay in caches" }),
        measured: `${rounds} rounds, ${tokens} tokens decoded in each`,
        ...Object.fromEntries(Object.entries(processors).map(([name, text]) => [name, `ran on ${text}`])),
        processes: `priority ${getPriority()}, ${load}${runWith ? `, run with ${runWith}` : ""}`,
      };
      write({ ...head, versions: { ...head.versions, ...versions }, settings, limits, verified: null, rows });
    } finally {
      bar.stop();
      made?.remove();
    }
  },
});

const modelText = ({ checkpoint, shape: name }: Given, shape: ModelShape | undefined, seed: number) =>
  shape
    ? `random weights of ${name}, ${shape.layers} layers, ${shape.vocab} tokens known, seed ${seed}`
    : (checkpoint as string);

function shapeOf(name: keyof typeof MODEL_SHAPES, { layers, vocab }: Pick<Given, "layers" | "vocab">): ModelShape {
  const shape: ModelShape = MODEL_SHAPES[name];
  return { ...shape, layers: layers ?? shape.layers, vocab: vocab ?? shape.vocab };
}
