export { Decoder, type SamplingOptions } from "./decoder.ts";
export { type Draft, type PromptLookupOptions, promptLookup } from "./draft.ts";
export {
  type GenerateBatchOptions,
  type GenerateOptions,
  generate,
  generateBatch,
  type Timings,
} from "./generate.ts";
export type { GenerationDefaults } from "./generation_config.ts";
export { readJson, readOptionalJson } from "./json.ts";
export { loadModel } from "./load.ts";
export type { DeltaPath, EncodeOptions, LanguageModel, LoadOptions, Snapshots, Tokens } from "./model.ts";
export { type PrefillBatchOptions, type PrefillOptions, prefill, prefillBatch } from "./prefill.ts";
export { PrefixCache, type PrefixCacheOptions } from "./prefix_cache.ts";
export { type QuantizeOptions, quantizeCheckpoint } from "./quantize_checkpoint.ts";
export { Qwen3_5 } from "./qwen3_5.ts";
export { type Qwen3_5Config, qwen3_5Config } from "./qwen3_5_config.ts";
export { ModelState, type SavedState, type StateOptions } from "./state.ts";
export { type ChatMessage, TextStream, Tokenizer } from "./tokenizer.ts";
