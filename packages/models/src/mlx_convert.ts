import {
  type Checkpoint,
  type Dtype,
  decodeNumbers,
  encodeNumbers,
  isFloat,
  MlxtsError,
  type RawArray,
  wrongValue,
} from "@mlxts/core";
import { Fields } from "./json.ts";
import { QWEN3_5_TYPES } from "./qwen3_5_config.ts";

/** One tensor of an MLX checkpoint, and the tensor it is made of. */
export interface PlannedTensor {
  source: string;
  name: string;
  shape: readonly number[];
  dtype: Dtype;
  /** The weight of a linear or embedding module: quantized into `weight`, `scales` and `biases`. */
  quantize: boolean;
  /** Stored as 1 + w. */
  addOne: boolean;
}

/** What turns a Hugging Face checkpoint into the one that mlx-lm would write. */
export interface MlxPlan {
  config: Record<string, unknown>;
  tensors: PlannedTensor[];
}

const ZERO_CENTRED = /(^|\.)(input_layernorm|post_attention_layernorm|model\.norm|q_norm|k_norm)\.weight$/;
/** Parts of multimodal and multi-token-prediction checkpoints that a text model has no use for. */
const OTHER_PARTS = /^(model\.)?(visual|vision_tower)\.|(^|\.)mtp\./;

/** mlx-lm's name of a tensor. */
function mlxName(name: string): string {
  if (name.startsWith("language_model.")) return name;
  if (name.startsWith("model.language_model."))
    return `language_model.model.${name.slice("model.language_model.".length)}`;
  return `language_model.${name}`;
}

/** Plans the conversion of a dense Qwen3.5 checkpoint: names, axes and norm weights as mlx-lm has them. */
export function planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, groupSize: number): MlxPlan {
  const fields = new Fields(json);
  fields.choice("model_type", QWEN3_5_TYPES);
  if (fields.has("quantization") || fields.has("quantization_config"))
    throw wrongValue(
      "quantize",
      "checkpoint",
      "not be quantized already",
      "a quantized checkpoint",
      "start from the original weights",
    );
  // mlx-lm has no place for the output matrix of a model that uses its embedding for it.
  const text = fields.object("text_config");
  const tied = text.boolean("tie_word_embeddings", fields.boolean("tie_word_embeddings", false));
  const wanted = (name: string) => !OTHER_PARTS.test(name) && !(tied && /(^|\.)lm_head\./.test(name));
  const names = checkpoint.names.filter(wanted);
  const convolutions = names.filter((name) => name.endsWith("conv1d.weight"));
  const huggingFace = convolutions.some((name) => checkpoint.info(name).shape.at(-1) !== 1);
  const tensors = names.map((source): PlannedTensor => {
    const { dtype, stored, shape } = checkpoint.info(source);
    const name = mlxName(source);
    const weight = name.endsWith(".weight") && shape.length === 2;
    if (dtype === undefined || (weight && !isFloat(dtype))) {
      const reason = `has dtype ${stored}; weights must be F32, F16 or BF16`;
      throw new MlxtsError("Safetensors", `${checkpoint.path}: tensor ${source} ${reason}`, {
        path: checkpoint.path,
        tensor: source,
        reason,
      });
    }
    const moved = huggingFace && name.endsWith("conv1d.weight") && shape.length === 3;
    return {
      source,
      name,
      // [C, 1, W] and [C, W, 1] are the same bytes.
      shape: moved ? [shape[0] as number, shape[2] as number, shape[1] as number] : shape,
      dtype,
      quantize: weight && (shape[1] as number) % groupSize === 0,
      addOne: huggingFace && shape.length === 1 && ZERO_CENTRED.test(name),
    };
  });
  // The type under which mlx-lm knows the text model.
  return { config: { ...json, model_type: "qwen3_5" }, tensors };
}

/** w → 1 + w, rounded to the dtype. */
export function addOne(dtype: Dtype, data: RawArray): RawArray {
  return encodeNumbers(
    dtype,
    decodeNumbers(dtype, data).map((value) => 1 + value),
  );
}
