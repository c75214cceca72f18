import { type OptionNames, wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import type { ModelPath } from "./families.ts";
import type { LanguageModel } from "./language_model.ts";
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

/** What both forms of generation take. */
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

/** The options of one sequence's end, checked and copied. */
export function checkEnd(op: string, model: LanguageModel, { maxTokens = 128, stopTokens }: EndOptions) {
  checkInteger(op, "maxTokens", maxTokens, 1);
  const stops: unknown = stopTokens ?? model.stopTokens;
  if (!Array.isArray(stops)) throw wrongKind(op, "stopTokens", "be an array of token ids", stops);
  const wrong = stops.findIndex((id) => !Number.isInteger(id) || id < 0);
  if (wrong >= 0) throw wrongValue(op, "stopTokens", "be integers ≥ 0", `${String(stops[wrong])} at position ${wrong}`);
  return { maxTokens, stopTokens: new Set<number>(stops) };
}

/** What is filled in for the caller, if it is an object. */
export function checkReport<T extends object>(op: string, argument: string, report: T | undefined): T | undefined {
  if (report === undefined || (typeof report === "object" && report !== null)) return report;
  throw wrongKind(op, argument, "be an object to fill in", report);
}

/** What a generation took, in tokens and milliseconds; `prefillMs` reaches to the first new token. */
export interface Timings {
  promptTokens: number;
  /** Of these, those that the cache had. */
  cachedTokens: number;
  prefillMs: number;
  generatedTokens: number;
  decodeMs: number;
  /** Tokens that were guessed, and those of them that were right. */
  draftedTokens: number;
  acceptedTokens: number;
}

/** Adds the time since the last call, or since `resume`. */
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

  lap(key: "prefillMs" | "decodeMs"): void {
    const now = performance.now();
    this.timings[key] += now - this.last;
    this.last = now;
  }

  resume(): void {
    this.last = performance.now();
  }
}
