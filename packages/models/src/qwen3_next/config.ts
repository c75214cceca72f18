import { Fields } from "../fields.ts";
import { hybridConfig, moeOf, type Qwen3_5Config } from "../qwen3_5/config.ts";

/** Reads and checks a `config.json`. */
export function qwen3NextConfig(json: Record<string, unknown>, op = "loadModel"): Qwen3_5Config {
  const config = new Fields(json, "config", op);
  const common = hybridConfig(config, config);
  const step = config.size("decoder_sparse_step", 1);
  const dense = new Set(config.indices("mlp_only_layers", common.layers.length));
  const hasExperts = common.layers.map((_, i) => (i + 1) % step === 0 && !dense.has(i));
  return {
    modelType: "qwen3_next",
    ...common,
    intermediateSize: hasExperts.every(Boolean) ? 0 : config.size("intermediate_size"),
    delta: { ...common.delta, joined: true },
    moe: hasExperts.some(Boolean) ? moeOf(config, common.hiddenSize) : undefined,
    hasExperts,
  };
}
