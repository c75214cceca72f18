import { type Checkpoint, DTYPES, type RawArray, wrongValue } from "@mlxts/core";
import type { Packing } from "@mlxts/quant4";
import type { NumberArray } from "../cache_rows.ts";
import type { MlxPlan, PlannedTensor } from "../family.ts";
import { namesWithoutScales } from "../fp8.ts";
import { elementsOf, type SourceTensor, sourceTensors } from "../source_tensors.ts";
import { furtherLayers, layerOf } from "../unused_tensors.ts";
import { type DeepseekConfig, deepseekConfig } from "./config.ts";

/** Routers, which mlx-lm never quantizes. */
const ROUTER = /\.mlp\.gate\.weight$/;
/** Frequencies that some checkpoints store though they follow from the config. */
const FREQUENCIES = /rotary_emb\.inv_freq$/;
const LAYER = /^model\.layers\.(\d+)\./;
const KV_UP = /^(.*\.self_attn)\.kv_b_proj\.weight$/;

/** Of `kv_b_proj` the rows of keys, of each head transposed, and those of values: mlx-lm's `embed_q` and `unembed_out`. */
function splitKvUp(
  source: SourceTensor,
  module: string,
  { heads, nope, v, rank }: DeepseekConfig["attention"],
): SourceTensor[] {
  const { dtype, shape: found } = source;
  const rows = nope + v;
  if (found.join() !== [heads * rows, rank].join())
    throw wrongValue("quantize", source.name, `have shape [${heads * rows}, ${rank}]`, `[${found.join(", ")}]`);
  const rearranged = (name: string, shape: [number, number, number], indexOf: (...at: number[]) => number) => ({
    name: `${module}.${name}.weight`,
    dtype,
    shape,
    async read(): Promise<RawArray> {
      const from = (await elementsOf(source, 0)) as NumberArray;
      const [, height, width] = shape;
      const to = new DTYPES[dtype].array(heads * height * width);
      for (let head = 0, at = 0; head < heads; head++)
        for (let i = 0; i < height; i++) for (let j = 0; j < width; j++) to[at++] = from[indexOf(head, i, j)] as number;
      return to;
    },
  });
  return [
    rearranged("embed_q", [heads, rank, nope], (head = 0, c = 0, i = 0) => (head * rows + i) * rank + c),
    rearranged("unembed_out", [heads, v, rank], (head = 0, i = 0, c = 0) => (head * rows + nope + i) * rank + c),
  ];
}

/** The rotary embedding under the names that mlx-lm reads. */
function withRopeScaling(json: Record<string, unknown>): Record<string, unknown> {
  const { rope_parameters: parameters } = json;
  if (json.rope_scaling != null || parameters === null || typeof parameters !== "object") return json;
  const { rope_theta = 10000 } = { ...json, ...parameters } as { rope_theta?: unknown };
  return { ...json, rope_theta, rope_scaling: parameters };
}

/**
 * Plans the conversion of a DeepSeek checkpoint: experts in stacks, and for V3 `kv_b_proj` as `embed_q` and `unembed_out`,
 * which are quantized once, from the original weights.
 */
export function planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, packing: Packing): MlxPlan {
  const config = deepseekConfig(json, "quantize");
  const all = namesWithoutScales(checkpoint).filter((name) => !FREQUENCIES.test(name));
  const count = config.layers.length;
  const further = furtherLayers(all);
  // They are numbered on from the model's own layers.
  const isFurther = (name: string) => Number(LAYER.exec(name)?.[1] ?? -1) >= count;
  const extra = all.find((name) => isFurther(name) && !further.has(layerOf(name)));
  if (extra !== undefined)
    throw wrongValue("quantize", "config.num_hidden_layers", `count the layer of ${extra}`, count);
  const names = all.filter((name) => !isFurther(name));
  const tensors = sourceTensors(checkpoint, names).flatMap((source) => {
    const [, module] = KV_UP.exec(source.name) ?? [];
    return module && config.modelType === "deepseek_v3" ? splitKvUp(source, module, config.attention) : [source];
  });
  return {
    config: withRopeScaling(json),
    nextTokens: all.filter(isFurther),
    tensors: tensors.map((tensor): PlannedTensor => {
      const { name, shape } = tensor;
      const isMatrix = name.endsWith(".weight") && shape.length >= 2 && !ROUTER.test(name);
      return {
        ...tensor,
        packing: isMatrix && (shape.at(-1) as number) % packing.groupSize === 0 ? packing : undefined,
      };
    }),
  };
}
