import {
  type Arena,
  type CommitOptions,
  type Device,
  type Recording,
  type SubmissionResult,
  type Tensor,
  wrongKind,
  wrongValue,
} from "@mlxts/core";
import { argmax, sample } from "@mlxts/nn";
import type { DeltaPath, LanguageModel, Tokens } from "./model.ts";
import type { ModelState } from "./state.ts";

/** Options of `prefill`. */
export interface PrefillOptions {
  /** Default `auto`. */
  path?: DeltaPath;
  /** Tokens of one pass. Default 512. */
  blockLength?: number;
  /** Positions (0-based, within `ids`) whose logits are wanted. Default: the last one. */
  positions?: readonly number[];
}

/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0 (default): always the most likely token. */
  temperature?: number;
  /** Consider only the k most likely tokens; 0 (default): all. */
  topK?: number;
  /** Consider only the most likely tokens that reach this probability together. Default 1: all. */
  topP?: number;
  /** Default 0. The same seed gives the same text. */
  seed?: number;
}

function checkIds(op: string, model: LanguageModel, ids: readonly number[]): void {
  if (!Array.isArray(ids)) throw wrongKind(op, "ids", "be an array of token ids", ids);
  if (ids.length === 0) throw wrongValue(op, "ids", "have at least one token", ids);
  const at = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= model.vocabSize);
  if (at >= 0)
    throw wrongValue(op, "ids", `be integers from 0 to ${model.vocabSize - 1}`, `${ids[at]} at position ${at}`);
}

/** The tensors of a pass over T tokens, in one buffer of T + T + 2 words. */
function tokenTensors(device: Device, count: number): { words: Tensor<"i32">; tokens: Tokens } {
  const words = device.tensor("i32", [2 * count + 2]);
  return {
    words,
    tokens: {
      ids: words.view(0, [1, count]).cast("u32"),
      positions: words.view(count, [1, count]),
      start: words.view(2 * count, [1]),
      lengths: words.view(2 * count + 1, [1]),
    },
  };
}

function tokenWords(ids: readonly number[], start: number): Int32Array {
  return Int32Array.from([...ids, ...ids.map((_, i) => start + i), start, start + ids.length]);
}

/**
 * Feeds `ids` to the state and returns the logits (f32, `vocabSize` each) of the positions asked for.
 * All arguments are checked first; a refused call leaves the state as it was.
 */
export async function prefill(
  model: LanguageModel,
  state: ModelState,
  ids: readonly number[],
  options: PrefillOptions = {},
): Promise<Float32Array[]> {
  const op = "prefill";
  const { path = "auto", blockLength = 512, positions = [ids.length - 1] } = options;
  checkIds(op, model, ids);
  if (!Number.isInteger(blockLength) || blockLength < 1)
    throw wrongValue(op, "blockLength", "be an integer ≥ 1", blockLength);
  for (const at of positions)
    if (!Number.isInteger(at) || at < 0 || at >= ids.length)
      throw wrongValue(op, "positions", `be integers from 0 to ${ids.length - 1}`, at);
  state.assertRoom(op, ids.length);
  const { device } = model;
  const arena = device.arena(1 << 22, { grow: true });
  const logits = new Map<number, Float32Array>();
  try {
    for (let begin = 0; begin < ids.length; begin += blockLength) {
      const block = ids.slice(begin, begin + blockLength);
      const pass = tokenTensors(device, block.length);
      using words = pass.words;
      words.write(tokenWords(block, state.tokens));
      arena.reset();
      using encoder = device.encoder({ arena });
      const hidden = model.encode(encoder, state, pass.tokens, path);
      const wanted = [...new Set(positions)].filter((at) => at >= begin && at < begin + block.length);
      const rows =
        wanted.length > 0
          ? model.encodeLogits(
              encoder,
              hidden,
              wanted.map((at) => at - begin),
            )
          : undefined;
      await encoder.commit();
      state.advance(block.length);
      if (rows)
        for (const [i, at] of wanted.entries()) logits.set(at, (await rows.slice(i, i + 1).read()) as Float32Array);
    }
  } finally {
    arena.dispose();
  }
  return positions.map((at) => logits.get(at) as Float32Array);
}

/** A decode step recorded once and replayed for each token: one call from JavaScript, one token out. */
export class Decoder {
  private readonly model: LanguageModel;
  private readonly state: ModelState;
  private readonly arena: Arena;
  private readonly words: Tensor<"i32">;
  private readonly step: Tensor<"u32">;
  private readonly ids: Tensor;
  private readonly recording: Recording;
  private steps = 0;

  constructor(model: LanguageModel, state: ModelState, sampling: SamplingOptions = {}) {
    const { device } = model;
    this.model = model;
    this.state = state;
    this.arena = device.arena(1 << 20, { grow: true });
    const { words, tokens } = tokenTensors(device, 1);
    this.words = words;
    this.ids = tokens.ids;
    this.step = device.tensor("u32", [1]);
    try {
      this.recording = this.record(tokens, sampling);
    } catch (error) {
      this.release();
      throw error;
    }
  }

  private record(tokens: Tokens, { temperature = 0, topK = 0, topP = 1, seed = 0 }: SamplingOptions): Recording {
    // Disposed when an op refuses its arguments; after `finish` there is nothing left to dispose.
    using encoder = this.model.device.encoder({ arena: this.arena });
    const hidden = this.model.encode(encoder, this.state, tokens, "recurrent");
    const logits = this.model.encodeLogits(encoder, hidden, [0]);
    // The next id replaces the one that was fed.
    const ids = this.ids.reshape([1]);
    if (temperature === 0 && topK === 0 && topP === 1) argmax(encoder, { logits, ids });
    else sample(encoder, { logits, step: this.step, ids }, { temperature, topK, topP, seed });
    return encoder.finish();
  }

  /** Dispatches of one step. */
  get dispatches(): number {
    return this.recording.dispatches;
  }

  private async feed(op: string, id: number, options: CommitOptions): Promise<SubmissionResult> {
    checkIds(op, this.model, [id]);
    this.state.assertRoom(op, 1);
    this.words.write(tokenWords([id], this.state.tokens));
    this.step.write([this.steps++]);
    const result = await this.recording.replay(options);
    this.state.advance(1);
    return result;
  }

  /** Feeds one token and returns the next. */
  async next(id: number): Promise<number> {
    await this.feed("decoder.next", id, {});
    return this.ids.readSync()[0] as number;
  }

  /** Feeds one token and returns what the step took on the device, dispatch by dispatch. */
  profile(id: number): Promise<SubmissionResult> {
    return this.feed("decoder.profile", id, { profile: true });
  }

  private release(): void {
    this.arena.dispose();
    this.words.dispose();
    this.step.dispose();
  }

  dispose(): void {
    this.recording.dispose();
    this.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Options of `generate`. */
export interface GenerateOptions extends SamplingOptions {
  /** Default 128. */
  maxTokens?: number;
  /** Ids that end the text. Default: the model's. */
  stopTokens?: readonly number[];
  path?: DeltaPath;
  /** Continues this state instead of an empty one. */
  state?: ModelState;
  /** Filled in when the generation ends. */
  timings?: Partial<Timings>;
}

/** What a generation took, in tokens and milliseconds; `prefillMs` reaches to the first new token. */
export interface Timings {
  promptTokens: number;
  prefillMs: number;
  generatedTokens: number;
  decodeMs: number;
}

/** Yields new token ids one by one, until a stop token (not yielded), `maxTokens`, or the end of the context. */
export async function* generate(
  model: LanguageModel,
  ids: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const op = "generate";
  const { maxTokens = 128, stopTokens = model.stopTokens, timings = {} } = options;
  checkIds(op, model, ids);
  if (!Number.isInteger(maxTokens) || maxTokens < 1) throw wrongValue(op, "maxTokens", "be an integer ≥ 1", maxTokens);
  const state = options.state ?? model.newState({ capacity: Math.min(model.contextLength, ids.length + maxTokens) });
  try {
    state.assertRoom(op, ids.length);
    using decoder = new Decoder(model, state, options);
    Object.assign(timings, {
      promptTokens: ids.length,
      prefillMs: 0,
      generatedTokens: 0,
      decodeMs: 0,
    } satisfies Timings);
    let last = performance.now();
    const lap = (key: "prefillMs" | "decodeMs") => {
      const now = performance.now();
      timings[key] = (timings[key] ?? 0) + now - last;
      last = now;
    };
    if (ids.length > 1) await prefill(model, state, ids.slice(0, -1), { path: options.path ?? "auto", positions: [] });
    let id = await decoder.next(ids[ids.length - 1] as number);
    lap("prefillMs");
    for (let count = 1; !stopTokens.includes(id); count++) {
      timings.generatedTokens = count;
      yield id;
      last = performance.now();
      if (count === maxTokens || state.tokens === state.capacity) return;
      id = await decoder.next(id);
      lap("decodeMs");
    }
  } finally {
    if (!options.state) state.dispose();
  }
}
