import { readFileSync } from "node:fs";
import { type Limits, measureLimits, type RateProbe, rateProbe, spreadOf } from "@mlxts/bench";
import { Device, type DeviceKind, type FloatDtype, openCheckpoint, type RawArray, type Tensor } from "@mlxts/core";
import {
  type Approximation,
  Decoder,
  type LanguageModel,
  loadModel,
  type ModelState,
  prefill,
  type SavedState,
} from "@mlxts/models";
import { elementwiseMul } from "@mlxts/nn";

/** The device of a measurement; a GPU has no threads to choose. */
export interface Place {
  device: DeviceKind;
  threads: number;
}

/** One measurement of a model, made in a process of its own. */
export type ModelJob = Place & {
  checkpoint: string;
  activationDtype: FloatDtype;
  approximate: Approximation | undefined;
} & (
    | { kind: "prefill"; tokens: number; times: number }
    | { kind: "decode"; after: number; tokens: number }
    | { kind: "memory"; tokens: number }
  );
export type Job = ModelJob | (Place & { kind: "limits" });

/** What a GPU can do at best. */
export type MemorySpeed = Pick<Limits, "memoryGBs">;

export interface PrefillResult {
  /** The first pass of the process, and later ones. */
  firstMs: number;
  laterMs: number[];
}

export interface DecodeResult {
  tokensPerSecond: number;
  /** Bytes of weights that a step reads. */
  bytesRead: number;
  /** How fast a CPU read memory between these steps. Machines change from one minute to the next. */
  memoryGBs: number | undefined;
}

export interface MemoryResult {
  loadMs: number;
  weightBytes: number;
  /** Memory that opening the checkpoint took, without the mapped file. */
  openedBytes: number;
  /** Memory that came with the tokens after the first ones, without the rows of caches, which are there from the start. */
  grownBytes: number;
  tokens: number;
}

/** Tokens far apart, so that experts and rows of the embedding differ. */
const tokenAt = (model: LanguageModel, i: number) => (i * 7919 + 13) % model.vocabSize;
const promptOf = (model: LanguageModel, tokens: number) => Array.from({ length: tokens }, (_, i) => tokenAt(model, i));

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

async function measurePrefill(model: LanguageModel, tokens: number, times: number): Promise<PrefillResult> {
  const ids = promptOf(model, tokens);
  const pass = async () => {
    using state = model.newState({ capacity: tokens });
    return await timed(() => prefill(model, state, ids));
  };
  const firstMs = await pass();
  const laterMs: number[] = [];
  for (let i = 0; i < times; i++) laterMs.push(await pass());
  return { firstMs, laterMs };
}

/** Longer sequences are made of the rows that this many tokens leave in the caches. */
const LONGEST_PREFILL = 1024;

/** A state that holds `tokens` tokens; of many tokens, all but the first ones are repetitions of these in the caches. */
async function stateAfter(model: LanguageModel, tokens: number, capacity: number): Promise<ModelState> {
  const state = model.newState({ capacity });
  const fed = tokens > LONGEST_PREFILL ? 64 : tokens;
  if (fed === 0) return state;
  await prefill(model, state, promptOf(model, fed));
  if (fed === tokens) return state;
  const saved = await state.save();
  await prefill(model, state, [tokenAt(model, fed)]);
  const next = await state.save();
  state.restore(repeated(saved, next, tokens));
  return state;
}

/** A sequence of `tokens` tokens: caches, which `next` has one row more of than `saved`, repeat their rows. */
export function repeated(saved: SavedState, next: SavedState, tokens: number): SavedState {
  const tensors: SavedState["tensors"] = {};
  for (const [name, tensor] of Object.entries(saved.tensors)) {
    const isCache = next.tensors[name]?.shape.join() !== tensor.shape.join();
    tensors[name] = isCache ? repeatedRows(tensor, saved.tokens, tokens) : tensor;
  }
  return { tokens, tensors };
}

type SavedTensor = SavedState["tensors"][string];

/** A tensor [..., rows, width] with as many rows as asked for, each a copy of one that there is. */
function repeatedRows({ dtype, shape, data }: SavedTensor, rows: number, wanted: number): SavedTensor {
  const width = shape.at(-1) as number;
  const parts = data.length / (rows * width);
  const Numbers = data.constructor as new (length: number) => RawArray;
  const all = new Numbers(parts * wanted * width);
  for (let part = 0; part < parts; part++) {
    const source = data.subarray(part * rows * width, (part + 1) * rows * width);
    const from = part * wanted * width;
    const end = from + wanted * width;
    for (let at = from; at < end; at += source.length)
      all.set(source.subarray(0, Math.min(source.length, end - at)) as never, at);
  }
  return { dtype, shape: [...shape.slice(0, -2), wanted, width], data: all };
}

/** Feeds so many tokens, each the most likely one after those before it, and returns the one after them. */
const decode = async (decoder: Decoder, from: number, tokens: number): Promise<number> =>
  (await decoder.nextMany(from, tokens)).at(-1) as number;

/** After so many, steps begin as early as those of a long text. */
const WARM_STEPS = 40;
/** Steps between two times that memory is read. */
const STEPS_AT_ONCE = 8;

async function measureDecode(
  model: LanguageModel,
  after: number,
  tokens: number,
  memory: RateProbe | null,
): Promise<Omit<DecodeResult, "bytesRead">> {
  using state = await stateAfter(model, after, after + WARM_STEPS + tokens);
  using decoder = new Decoder(model, state, { temperature: 0 });
  let id = await decode(decoder, 1, WARM_STEPS);
  let ms = 0;
  const rates: number[] = [];
  for (let done = 0; done < tokens; done += STEPS_AT_ONCE) {
    ms += await timed(async () => {
      id = await decode(decoder, id, Math.min(STEPS_AT_ONCE, tokens - done));
    });
    if (memory) rates.push(await memory.run());
  }
  return { tokensPerSecond: (tokens * 1000) / ms, memoryGBs: memory ? spreadOf(rates).median : undefined };
}

/** Tensors of experts that a router chooses. */
const ROUTED = /\.(experts|switch_mlp)\./;
const EMBEDDING = /(^|\.)embed_tokens\.\w+$/;
const OUTPUT = /(^|\.)lm_head\./;

/**
 * Bytes of weights that a decode step reads, scales and biases of quantized ones with them: of experts those that a token
 * goes to, of an embedding nothing but a row.
 */
export async function bytesReadByStep(device: Device, path: string, model: LanguageModel): Promise<number> {
  using checkpoint = await openCheckpoint(device, path);
  const { experts } = model.sizes;
  const routed = experts ? experts.perToken / experts.count : 1;
  const hasOutput = [...model.tensorNames].some((name) => OUTPUT.test(name));
  const names = new Set(model.tensorNames);
  for (const name of model.tensorNames)
    for (const part of ["scales", "biases"]) {
      const besides = name.replace(/\bweight$/, part);
      if (checkpoint.has(besides)) names.add(besides);
    }
  let bytes = 0;
  for (const name of names) {
    if (hasOutput && EMBEDDING.test(name)) continue;
    const { shape, storedDtype } = checkpoint.info(name);
    const bits = Number(/\d+/.exec(storedDtype)?.[0] ?? 8);
    const size = shape.reduce((a, b) => a * b, 1) * (bits / 8);
    bytes += ROUTED.test(name) ? size * routed : size;
  }
  return bytes;
}

/** Memory of this process that belongs to no file, in bytes; Linux tells. */
const ownMemory = () =>
  Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? Number.NaN) * 1024;

/** The collector has run, so that garbage does not count. */
function settledMemory(): number {
  globalThis.gc?.();
  return ownMemory();
}

/** Tokens until everything that is made once is there. */
const SETTLING_TOKENS = 32;

/** Steps that wait for each other: the second form of a step is recorded once some are short, at any time. */
async function decodeOneByOne(decoder: Decoder, from: number, tokens: number): Promise<number> {
  let id = from;
  for (let i = 0; i < tokens; i++) id = await decoder.next(id);
  return id;
}

async function measureMemory(open: () => Promise<LanguageModel>, tokens: number): Promise<MemoryResult> {
  const before = settledMemory();
  const start = performance.now();
  using model = await open();
  const loadMs = performance.now() - start;
  const openedBytes = settledMemory() - before;
  const capacity = SETTLING_TOKENS + tokens;
  using state = model.newState({ capacity });
  using decoder = new Decoder(model, state, { temperature: 0 });
  const id = await decodeOneByOne(decoder, 1, SETTLING_TOKENS);
  const settled = settledMemory();
  await decodeOneByOne(decoder, id, tokens);
  // Rows of caches take memory when they are first written.
  const caches = model.stateMemory({ capacity }).perToken * tokens;
  const grownBytes = settledMemory() - settled - caches;
  return { loadMs, weightBytes: model.weightBytes, openedBytes, grownBytes, tokens };
}

/** Elements of each tensor that is moved to find a GPU's memory speed: together far more than its caches hold. */
const MOVED = 2 ** 26;

/** Reads two tensors and writes one, of 256 MiB each, and takes the best of some times. */
async function measureMemorySpeed(device: Device): Promise<MemorySpeed> {
  const [a, b, out] = [0, 0, 0].map(() => device.tensor("f32", [MOVED])) as [Tensor, Tensor, Tensor];
  let ms = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 7; i++) {
    const encoder = device.encoder();
    elementwiseMul(encoder, { a, b, out });
    ms = Math.min(ms, (await encoder.commit()).ms);
  }
  return { memoryGBs: (3 * 4 * MOVED) / ms / 1e6 };
}

/** Makes one measurement. */
export async function runJob(job: Job): Promise<PrefillResult | DecodeResult | MemoryResult | Limits | MemorySpeed> {
  const onCpu = job.device === "cpu";
  using device = Device.open(job.device, onCpu ? { threads: job.threads } : {});
  if (job.kind === "limits") return onCpu ? await measureLimits(device) : await measureMemorySpeed(device);
  const { activationDtype, approximate } = job;
  const open = () => loadModel(device, job.checkpoint, { activationDtype, approximate });
  if (job.kind === "memory") return await measureMemory(open, job.tokens);
  using model = await open();
  if (job.kind === "prefill") return await measurePrefill(model, job.tokens, job.times);
  using memory = onCpu ? rateProbe(device, "memoryGBs") : null;
  const measured = await measureDecode(model, job.after, job.tokens, memory);
  // A GPU would be given the weights once more.
  using host = Device.open("cpu");
  return { ...measured, bytesRead: await bytesReadByStep(host, job.checkpoint, model) };
}
