import { type Checkpoint, type Dtype, decodeNumbers, encodeNumbers, type RawArray } from "@mlxts/core";
import type { Packing } from "@mlxts/quant4";
import type { MlxPlan, PlannedTensor } from "../family.ts";
import { Fields } from "../fields.ts";
import { namesWithoutScales } from "../fp8.ts";
import { elementsOf, type SourceTensor, sourceTensors } from "../source_tensors.ts";

/** Norms whose weights Hugging Face stores as w for a factor of 1 + w. */
const ZERO_CENTERED = /(^|\.)(input_layernorm|post_attention_layernorm|model\.norm|q_norm|k_norm)\.weight$/;
const VISION = /^(model\.)?(visual|vision_tower)\./;
/** Layers that predict the tokens after the next one. */
const NEXT_TOKENS = /(^|\.)mtp\./;
const CONVOLUTION = /conv1d\.weight$/;
const MATRIX = /\.weight$/;
const STACK = /\.switch_mlp\.\w+\.weight$/;
/** Routers and gates of shared experts, which mlx-lm quantizes to 8 bits whatever the rest gets. */
const ROUTER = /(mlp\.gate|shared_expert_gate)\.weight$/;
const ROUTER_PACKING: Packing = { bits: 8, groupSize: 64 };

/** mlx-lm's name of a tensor of Qwen3.5. */
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

/** Names of the tensors of the text model. */
function textNames(checkpoint: Checkpoint, json: Record<string, unknown>): string[] {
  const fields = new Fields(json, "config", "quantize");
  const text = fields.object("text_config");
  const tied = text.boolean("tie_word_embeddings", fields.boolean("tie_word_embeddings", false));
  // mlx-lm's model has no output matrix when it uses the embedding as one.
  return namesWithoutScales(checkpoint).filter((name) => !VISION.test(name) && !(tied && /(^|\.)lm_head\./.test(name)));
}

/** How mlx-lm quantizes a tensor: matrices and stacks of them whose rows are whole groups. */
function packingOf(name: string, shape: readonly number[], packing: Packing): Packing | undefined {
  if (!MATRIX.test(name) || !(shape.length === 2 || (shape.length === 3 && STACK.test(name)))) return undefined;
  const own = ROUTER.test(name) ? ROUTER_PACKING : packing;
  const cols = shape.at(-1) as number;
  return cols % packing.groupSize === 0 && cols % own.groupSize === 0 ? own : undefined;
}

function planTensor(source: SourceTensor, name: string, huggingFace: boolean, packing: Packing): PlannedTensor {
  const { dtype, shape } = source;
  const addsOne = huggingFace && shape.length === 1 && ZERO_CENTERED.test(name);
  const [channels = 0, middle = 0, last = 0] = shape;
  return {
    ...source,
    name,
    // [C, 1, W] and [C, W, 1] have the same bytes.
    shape: huggingFace && CONVOLUTION.test(name) && shape.length === 3 ? [channels, last, middle] : shape,
    packing: packingOf(name, shape, packing),
    read: addsOne ? async (part) => addOne(dtype, await elementsOf(source, part)) : source.read,
  };
}

/**
 * The tensors that mlx-lm has for a Hugging Face checkpoint with layers of gated delta rule: names, axes and norm weights.
 * `rename` gives their names.
 */
export function planTensors(
  checkpoint: Checkpoint,
  json: Record<string, unknown>,
  packing: Packing,
  rename: (name: string) => string,
): Pick<MlxPlan, "tensors" | "nextTokens"> {
  const all = textNames(checkpoint, json);
  const names = all.filter((name) => !NEXT_TOKENS.test(name));
  const convolutions = names.filter((name) => CONVOLUTION.test(name));
  const huggingFace = convolutions.some((name) => checkpoint.info(name).shape.at(-1) !== 1);
  return {
    tensors: sourceTensors(checkpoint, names).map((source) =>
      planTensor(source, rename(source.name), huggingFace, packing),
    ),
    nextTokens: all.filter((name) => NEXT_TOKENS.test(name)),
  };
}

/** Plans the conversion of a Qwen3.5 checkpoint, dense or with experts. */
export function planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, packing: Packing): MlxPlan {
  // The types under which mlx-lm knows the text models.
  const type = String(json.model_type).replace(/_text$/, "");
  return { config: { ...json, model_type: type }, ...planTensors(checkpoint, json, packing, mlxName) };
}
