import { type Checkpoint, MlxtsError, type StoredDtype } from "@mlxts/core";
import type { LanguageModel } from "@mlxts/models";
import { packingOf, type Quantization } from "@mlxts/quant4";

/** The weights of a checkpoint, counted. */
export interface Parameters {
  /** All weights: each quantized weight counts, scales and biases do not. */
  total: number;
  /** The quantized ones. */
  quantized: number;
  /** Weights by tensor, as `total` counts them. */
  tensors: Map<string, number>;
  /** Quantized weights by `bits` and `groupSize`: their modules, and their groups that share a scale and a bias. */
  groups: { bits: number; groupSize: number; modules: number; groups: number; weights: number }[];
}

/** Dtypes of weights that are not packed. */
const FLOAT_TYPES: ReadonlySet<StoredDtype> = new Set(["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"]);

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/**
 * Counts the weights of a checkpoint from the shapes of its tensors.
 * @throws MlxtsError `QuantConfig` or `UnsupportedDtype` when it is unknown what packed words hold
 */
export function countParameters(checkpoint: Checkpoint, quantization: Quantization | undefined): Parameters {
  const counted: Parameters = { total: 0, quantized: 0, tensors: new Map(), groups: [] };
  const packed = new Set(
    checkpoint.names.filter((name) => name.endsWith(".scales")).map((name) => name.slice(0, -".scales".length)),
  );
  for (const name of checkpoint.names) {
    const { storedDtype, shape } = checkpoint.info(name);
    const [module, part] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
    if (!packed.has(module) || !["weight", "scales", "biases"].includes(part)) {
      if (FLOAT_TYPES.has(storedDtype)) counted.tensors.set(name, product(shape));
      continue;
    }
    if (part !== "weight") continue;
    const packing = quantization && packingOf(checkpoint, quantization, module);
    if (!packing) {
      const reason = "has `scales`, but config.json does not say how it is quantized";
      throw new MlxtsError("QuantConfig", `${module}: ${reason}`, { module, reason });
    }
    const weights = (product(shape) * 32) / packing.bits;
    const { bits, groupSize } = packing;
    let kind = counted.groups.find((each) => each.bits === bits && each.groupSize === groupSize);
    if (!kind) {
      kind = { bits, groupSize, modules: 0, groups: 0, weights: 0 };
      counted.groups.push(kind);
    }
    kind.modules++;
    kind.groups += weights / groupSize;
    kind.weights += weights;
    counted.quantized += weights;
    counted.tensors.set(name, weights);
  }
  for (const weights of counted.tensors.values()) counted.total += weights;
  return counted;
}

/** Tensors of experts that a router chooses, in all layouts. */
const ROUTED = /\.(experts|switch_mlp)\./;

/** The weights that take part in computing one token: of the experts only those that it goes to. */
export function activeParameters({ tensors }: Parameters, { tensorNames, sizes }: LanguageModel): number {
  let always = 0;
  let routed = 0;
  for (const [name, weights] of tensors)
    if (tensorNames.has(name)) {
      if (ROUTED.test(name)) routed += weights;
      else always += weights;
    }
  return sizes.experts ? always + (routed * sizes.experts.perToken) / sizes.experts.count : always;
}
