import { Fields } from "./fields.ts";
import type { Sampling, SamplingOptions } from "./sampling.ts";

/** Sampling of a checkpoint's `generation_config.json`: the defaults of the options of the same names. */
export interface GenerationDefaults {
  /** The file's `temperature`, or 0 unless it has `"do_sample": true`, as in Hugging Face transformers. */
  readonly temperature: number;
  /** The file's `top_k`, or 0, which means all tokens. */
  readonly topK: number;
  /** The file's `top_p`, or 1, which means all tokens. */
  readonly topP: number;
}

/**
 * Reads and checks the sampling fields of a `generation_config.json`. Without the file the likeliest token is taken. A
 * `top_k` of −1 means all tokens, as in vLLM; a `top_p` of 0 leaves one token where tokens are drawn, and means nothing
 * beside `"do_sample": false`.
 */
export function generationDefaults(json: Record<string, unknown> = {}): GenerationDefaults {
  const fields = new Fields(json, "generation_config");
  const temperature = fields.between("temperature", 0, Number.MAX_VALUE, 1);
  const draws = fields.boolean("do_sample", false);
  const topK = json.top_k === -1 ? 0 : fields.between("top_k", 0, 0x7fffffff, 0);
  const isNoTopP = json.top_p === 0;
  return {
    temperature: draws ? temperature : 0,
    topK: isNoTopP && draws ? 1 : topK === 0 ? 0 : fields.size("top_k"),
    topP: isNoTopP ? 1 : fields.between("top_p", Number.MIN_VALUE, 1, 1),
  };
}

/** The options, completed by the checkpoint's defaults; its `topK` and `topP` apply only where a token is drawn. */
export function withDefaults(defaults: GenerationDefaults, options: SamplingOptions): Sampling {
  const { temperature = defaults.temperature, seed = 0 } = options;
  const { topK, topP } = temperature === 0 ? { topK: 0, topP: 1 } : defaults;
  return { temperature, topK: options.topK ?? topK, topP: options.topP ?? topP, seed };
}
