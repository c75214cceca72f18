import type { OptionNames } from "@mlxts/core";

/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0: always the most likely token. Default: the model's `generationDefaults.temperature`. */
  temperature?: number;
  /** Consider only the k most likely tokens; 0: all. Default: the model's `generationDefaults.topK`. */
  topK?: number;
  /**
   * Consider only the most likely tokens whose probabilities add up to this; 1: all. Default: the model's
   * `generationDefaults.topP`.
   */
  topP?: number;
  /** Default 0. The same seed gives the same text. */
  seed?: number;
}

export const SAMPLING_OPTIONS: OptionNames<SamplingOptions> = { temperature: true, topK: true, topP: true, seed: true };

/** The options, completed. The op that draws checks their ranges. */
export type Sampling = Required<SamplingOptions>;

/** Whether the likeliest token is taken, and none is drawn. */
export const isGreedy = ({ temperature, topK, topP }: Sampling): boolean =>
  temperature === 0 && topK === 0 && topP === 1;
