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
  /** The weight of a linear or embedding module: quantised into `weight`, `scales` and `biases`. */
  quantise: boolean;
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
      "not be quantised already",
      "a quantised checkpoint",
      "start from the original weights",
    );
  const names = checkpoint.names.filter((name) => !OTHER_PARTS.test(name));
  const convolutions = names.filter((name) => name.endsWith("conv1d.weight"));
  const huggingFace = convolutions.some((name) => checkpoint.info(name).shape.at(-1) !== 1);
  const tensors = names.map((source): PlannedTensor => {
    const { dtype, shape } = checkpoint.info(source);
    const name = mlxName(source);
    const weight = name.endsWith(".weight") && shape.length === 2;
    if (weight && !isFloat(dtype as Dtype)) {
      const reason = `has dtype ${dtype}; only f32, f16 and bf16 weights are quantised`;
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
      dtype: dtype as Dtype,
      quantise: weight && (shape[1] as number) % groupSize === 0,
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
