import { type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import { feed } from "./feed.ts";
import type { LanguageModel } from "./language_model.ts";
import type { ModelPath } from "./pass.ts";
import type { PrefixCache } from "./prefix_cache.ts";
import { SAMPLING_OPTIONS, type SamplingOptions } from "./sampling.ts";
import type { CallOptions } from "./signal.ts";
import type { ModelState } from "./state.ts";

/** When the text of a sequence ends. */
export interface EndOptions {
  /** New tokens of a sequence. Default 128. */
  maxTokens?: number;
  /** Ids that end the text. Default: the model's. */
  stopTokens?: readonly number[];
}

/** Options of `generate` and of `generateBatch`. */
export interface CommonOptions extends SamplingOptions, EndOptions, CallOptions {
  /** See `prefill`. */
  path?: ModelPath;
  /**
   * Continues this state instead of an empty one. It is in use until the generation ends, and then holds what it held
   * before, the prompt, and every id that was yielded. README: "How a generation ends".
   */
  state?: ModelState;
  /** See `prefill`. */
  cache?: PrefixCache;
  /** Filled in when the generation ends. */
  timings?: Partial<Timings>;
}

export const COMMON_OPTIONS: OptionNames<CommonOptions> = {
  ...SAMPLING_OPTIONS,
  maxTokens: true,
  stopTokens: true,
  signal: true,
  path: true,
  state: true,
  cache: true,
  timings: true,
};

/**
 * Why a text ended. `stop`: a stop token. `length`: `maxTokens`, or the end of the context. `aborted`: by `signal`, or by
 * the loop that read it (`break`, `return`). `error`: something failed.
 */
export type FinishReason = "stop" | "length" | "aborted" | "error";

/** How the text of a sequence ended. */
export interface Ending {
  finishReason: FinishReason;
  /** The token that ended it, for `stop`; it was neither yielded nor fed. */
  stopToken?: number;
}

/** Checked copies of the options that end a sequence. */
export function checkEnd(op: string, model: LanguageModel, { maxTokens = 128, stopTokens }: EndOptions) {
  checkInteger(op, "maxTokens", maxTokens, 1);
  const stops: unknown = stopTokens ?? model.stopTokens;
  if (!Array.isArray(stops)) throw wrongKind(op, "stopTokens", "be an array of token ids", stops);
  const wrong = stops.findIndex((id) => !Number.isInteger(id) || id < 0);
  if (wrong >= 0) throw wrongValue(op, "stopTokens", "be integers ≥ 0", `${String(stops[wrong])} at position ${wrong}`);
  return { maxTokens, stopTokens: new Set<number>(stops) };
}

/** How a generation ended that threw this error. */
export const endingOf = (error: unknown, signal: AbortSignal | undefined): Ending => ({
  finishReason: signal?.aborted && error === signal.reason ? "aborted" : "error",
});

/** `report` if it is an object or undefined. */
export function checkReport<T extends object>(op: string, argument: string, report: T | undefined): T | undefined {
  if (report === undefined || (typeof report === "object" && report !== null)) return report;
  throw wrongKind(op, argument, "be an object to fill in", report);
}

/** Tokens and milliseconds of a generation. */
export interface Timings {
  promptTokens: number;
  /** Tokens of the prompt that the cache restored. */
  cachedTokens: number;
  /** Until the first new token. */
  prefillMs: number;
  generatedTokens: number;
  decodeMs: number;
  /** Tokens that were guessed. */
  draftedTokens: number;
  /** Tokens of the guesses that were right. */
  acceptedTokens: number;
}

/** Measures a generation, without the time in which its reader has the control. */
export class Stopwatch {
  readonly timings: Timings;
  private last = performance.now();

  constructor(report: Partial<Timings> = {}) {
    this.timings = Object.assign(report, {
      promptTokens: 0,
      cachedTokens: 0,
      prefillMs: 0,
      generatedTokens: 0,
      decodeMs: 0,
      draftedTokens: 0,
      acceptedTokens: 0,
    });
  }

  /** Adds the time since the last lap or since `resume`. */
  lap(key: "prefillMs" | "decodeMs"): void {
    const now = performance.now();
    this.timings[key] += now - this.last;
    this.last = now;
  }

  resume(): void {
    this.last = performance.now();
  }
}

/** What feeding the prompts of a generation takes. */
interface PromptCall {
  op: string;
  /** The caller's name of the prompts, for errors. */
  argument: string;
  model: LanguageModel;
  state: ModelState;
  path: ModelPath;
  cache: PrefixCache | undefined;
  signal: AbortSignal | undefined;
  watch: Stopwatch;
}

/** Feeds all tokens of each prompt but the last, which the first decode step takes. */
export async function feedPrompts(prompts: readonly (readonly number[])[], call: PromptCall): Promise<void> {
  const { op, argument, model, state, path, cache, signal, watch } = call;
  watch.timings.promptTokens = prompts.reduce((sum, { length }) => sum + length, 0);
  const begins = prompts.map((ids) => ids.slice(0, -1));
  if (begins.every(({ length }) => length === 0)) return;
  const options = { path, positions: begins.map(() => []), cache, signal };
  const { restored } = await feed(op, model, state, begins, options, argument);
  watch.timings.cachedTokens = restored.reduce((sum, tokens) => sum + tokens, 0);
}
