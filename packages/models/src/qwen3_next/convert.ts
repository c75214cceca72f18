import type { Checkpoint } from "@mlxts/core";
import type { Packing } from "@mlxts/quant4";
import type { MlxPlan } from "../family.ts";
import { planTensors } from "../qwen3_5/convert.ts";
import { qwen3NextConfig } from "./config.ts";

/** Plans the conversion of a Qwen3-Next checkpoint. */
export function planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, packing: Packing): MlxPlan {
  const { attention, layers, moe } = qwen3NextConfig(json, "quantize");
  const interval = layers.indexOf("full_attention") + 1;
  // Fields that mlx-lm needs or has another default for; Hugging Face may say them elsewhere or leave them out.
  const needed = {
    rope_theta: attention.ropeTheta,
    partial_rotary_factor: attention.rotaryDim / attention.headDim,
    head_dim: attention.headDim,
    norm_topk_prob: moe?.normalize ?? true,
    decoder_sparse_step: 1,
    mlp_only_layers: [],
    ...(interval > 0 && { full_attention_interval: interval }),
  };
  return { config: { ...needed, ...json }, ...planTensors(checkpoint, json, packing, (name) => name) };
}
