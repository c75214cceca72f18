import type { Family } from "../family.ts";
import type { Qwen3_5Config } from "../qwen3_5/config.ts";
import { Qwen3_5 } from "../qwen3_5/model.ts";
import { qwen3NextConfig } from "./config.ts";
import { planMlx } from "./convert.ts";

/** Qwen3-Next: the layers of Qwen3.5 with other projections, and experts in most of them. */
export const qwen3Next: Family<Qwen3_5Config> = {
  modelTypes: ["qwen3_next"],
  readConfig: (json) => qwen3NextConfig(json),
  load: Qwen3_5.load,
  planMlx,
};
