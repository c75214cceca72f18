import { type Device, type Dtype, type FloatDtype, isFloat, wrongValue } from "@mlxts/core";
import { quantizationOf } from "@mlxts/quant4";
import { Fields } from "./fields.ts";

/** Dtype of activations; auto: the checkpoint's own where the device computes faster in it, else f32. */
export type ActivationDtype = FloatDtype | "auto";

/** Values of the option `activationDtype`. */
export const ACTIVATION_DTYPES = ["f32", "f16", "bf16", "auto"] as const satisfies readonly ActivationDtype[];

type FasterDtypes = Readonly<Record<string, readonly FloatDtype[] | undefined>>;
/**
 * By level of a CPU, the narrow dtypes in which prompts are faster than in f32, and steps no slower, as measured: see the
 * README.
 */
const FASTER: FasterDtypes = {
  amx: ["bf16", "f16"],
  avx512: ["bf16"],
};
/** Those that are so only where weights are of 4 bits. */
const FASTER_WITH_4_BITS: FasterDtypes = {
  avx2: ["bf16"],
};

/** What is asked of a checkpoint. */
interface StoredTensors {
  readonly names: readonly string[];
  info(name: string): { readonly dtype?: Dtype | undefined };
}

/** What configs call the dtypes. */
const CONFIG_NAMES: Readonly<Record<string, FloatDtype>> = { bfloat16: "bf16", float16: "f16", float32: "f32" };

export function checkActivationDtype(op: string, asked: ActivationDtype): ActivationDtype {
  if (!ACTIVATION_DTYPES.includes(asked))
    throw wrongValue(op, "activationDtype", `be one of ${ACTIVATION_DTYPES.join(", ")}`, asked);
  return asked;
}

/** The dtype that is meant on a device, for a checkpoint with this `config.json`. */
export function activationDtypeFor(
  asked: ActivationDtype,
  { gpu, level }: Pick<Device, "gpu" | "level">,
  json: Record<string, unknown>,
  checkpoint: StoredTensors,
): FloatDtype {
  if (asked !== "auto") return asked;
  const own = declaredDtype(json) ?? storedDtype(checkpoint);
  if (own === "f32" || gpu || FASTER[level]?.includes(own)) return own;
  return quantizationOf(json)?.bits === 4 && FASTER_WITH_4_BITS[level]?.includes(own) ? own : "f32";
}

/** The dtype that `config.json` says: of the text model of a multimodal one first. */
function declaredDtype(json: Record<string, unknown>): FloatDtype | undefined {
  const config = new Fields(json);
  for (const fields of [config.object("text_config"), config])
    for (const name of ["dtype", "torch_dtype"])
      if (fields.has(name)) return CONFIG_NAMES[fields.choice(name, Object.keys(CONFIG_NAMES))];
  return undefined;
}

/** The dtype of the embedding, or of its scales, from which MLX's activations take theirs. */
function storedDtype(checkpoint: StoredTensors): FloatDtype {
  for (const ending of ["embed_tokens.scales", "embed_tokens.weight"]) {
    const name = checkpoint.names.find((each) => each.endsWith(ending));
    const dtype = name === undefined ? undefined : checkpoint.info(name).dtype;
    if (dtype !== undefined && isFloat(dtype)) return dtype;
  }
  return "f32";
}
