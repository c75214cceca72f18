import { type Checkpoint, type Dtype, decodeNumbers, encodeNumbers, type RawArray } from "@mlxts/core";
import type { Packing } from "@mlxts/quant4";
import type { MlxPlan, PlannedTensor } from "../family.ts";
import { Fields } from "../fields.ts";
import { elementsOf, type SourceTensor, sourceTensors } from "../source_tensors.ts";

/** Norms whose weights Hugging Face stores as w for a factor of 1 + w. */
const ZERO_CENTERED = /(^|\.)(input_layernorm|post_attention_layernorm|model\.norm|q_norm|k_norm)\.weight$/;
/** Vision towers and multi-token prediction: parts of a checkpoint that the text model does not use. */
const OTHER_PARTS = /^(model\.)?(visual|vision_tower)\.|(^|\.)mtp\./;
const CONVOLUTION = /conv1d\.weight$/;

/** mlx-lm's name of a tensor. */
function mlxName(name: string): string {
  if (name.startsWith("language_model.")) return name;
  if (name.startsWith("model.language_model."))
    return `language_model.model.${name.slice("model.language_model.".length)}`;
  return `language_model.${name}`;
}

/** w → 1 + w, rounded to the dtype. */
function addOne(dtype: Dtype, data: RawArray): RawArray {
  return encodeNumbers(
    dtype,
    decodeNumbers(dtype, data).map((value) => 1 + value),
  );
}

/** Names of the tensors that mlx-lm keeps. */
function keptNames(checkpoint: Checkpoint, json: Record<string, unknown>): string[] {
  const fields = new Fields(json, "config", "quantize");
  const text = fields.object("text_config");
  const tied = text.boolean("tie_word_embeddings", fields.boolean("tie_word_embeddings", false));
  // mlx-lm's model has no output matrix when it uses the embedding as one.
  return checkpoint.names.filter((name) => !OTHER_PARTS.test(name) && !(tied && /(^|\.)lm_head\./.test(name)));
}

function planTensor(source: SourceTensor, huggingFace: boolean, packing: Packing): PlannedTensor {
  const { dtype, shape } = source;
  const name = mlxName(source.name);
  const isMatrix = name.endsWith(".weight") && shape.length === 2;
  const addsOne = huggingFace && shape.length === 1 && ZERO_CENTERED.test(name);
  const [channels = 0, middle = 0, last = 0] = shape;
  return {
    ...source,
    name,
    // [C, 1, W] and [C, W, 1] have the same bytes.
    shape: huggingFace && CONVOLUTION.test(name) && shape.length === 3 ? [channels, last, middle] : shape,
    packing: isMatrix && middle % packing.groupSize === 0 ? packing : undefined,
    read: addsOne ? async (part) => addOne(dtype, await elementsOf(source, part)) : source.read,
  };
}

/** Plans the conversion of a dense Qwen3.5 checkpoint: names, axes and norm weights as mlx-lm has them. */
export function planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, packing: Packing): MlxPlan {
  const names = keptNames(checkpoint, json);
  const convolutions = names.filter((name) => CONVOLUTION.test(name));
  const huggingFace = convolutions.some((name) => checkpoint.info(name).shape.at(-1) !== 1);
  return {
    // The type under which mlx-lm knows the text model.
    config: { ...json, model_type: "qwen3_5" },
    tensors: sourceTensors(checkpoint, names).map((source) => planTensor(source, huggingFace, packing)),
  };
}
