import type { Family } from "../family.ts";
import { type DeepseekConfig, deepseekConfig } from "./config.ts";
import { planMlx } from "./convert.ts";
import { DeepseekV3 } from "./model.ts";

/** DeepSeek-V3, and DeepSeek-V2 with V2-Lite. */
export const deepseekV3: Family<DeepseekConfig> = {
  modelTypes: ["deepseek_v3", "deepseek_v2"],
  readConfig: (json) => deepseekConfig(json),
  load: DeepseekV3.load,
  planMlx,
};
