export {
  Decoder,
  type GenerateOptions,
  generate,
  type PrefillOptions,
  prefill,
  type SamplingOptions,
  type Timings,
} from "./generate.ts";
export { readJson, readOptionalJson } from "./json.ts";
export { loadModel } from "./load.ts";
export type { DeltaPath, LanguageModel, LoadOptions, Tokens } from "./model.ts";
export { type QuantizeOptions, quantizeCheckpoint } from "./quantize_checkpoint.ts";
export { Qwen3_5 } from "./qwen3_5.ts";
export { type Qwen3_5Config, qwen3_5Config } from "./qwen3_5_config.ts";
export { ModelState, type SavedState } from "./state.ts";
export { type ChatMessage, TextStream, Tokenizer } from "./tokenizer.ts";
