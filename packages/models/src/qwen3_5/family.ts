import type { Family } from "../family.ts";
import { type Qwen3_5Config, qwen3_5Config, qwen3_5MoeConfig } from "./config.ts";
import { planMlx } from "./convert.ts";
import { Qwen3_5 } from "./model.ts";

/** Dense Qwen3.5 text models; of a multimodal checkpoint its text model. */
export const qwen3_5: Family<Qwen3_5Config> = {
  modelTypes: ["qwen3_5", "qwen3_5_text"],
  readConfig: qwen3_5Config,
  load: Qwen3_5.load,
  planMlx,
};

/** Qwen3.5 text models with experts; of a multimodal checkpoint its text model. */
export const qwen3_5Moe: Family<Qwen3_5Config> = {
  modelTypes: ["qwen3_5_moe", "qwen3_5_moe_text"],
  readConfig: qwen3_5MoeConfig,
  load: Qwen3_5.load,
  planMlx,
};
