import { type Checkpoint, MlxtsError } from "@mlxts/core";

/** What stands before the names of a layer's tensors. */
const LAYER = /^.*?\blayers\.\d+\./;
/** What only layers that predict further tokens have. Families number them on from the model's own. */
const FURTHER = /\.(enorm|hnorm|eh_proj)\.[^.]+$/;
/** Frequencies that some checkpoints store though they follow from the config. */
const FREQUENCIES = /\brotary_emb\.inv_freq$/;

/** What stands before the names of the tensors of a layer, as `model.layers.3.`, and of all layers beside it. */
export const layerOf = (name: string): string | undefined => LAYER.exec(name)?.[0];
const listOf = (name: string) => layerOf(name)?.replace(/\d+\.$/, "");
/** Layers that predict further tokens. */
export const furtherLayers = (names: readonly string[]): ReadonlySet<string | undefined> =>
  new Set(names.filter((name) => FURTHER.test(name)).map(layerOf));

const moduleOf = (name: string): string => name.slice(0, name.lastIndexOf("."));

/** Whether a tensor holds the scales or biases of a quantized matrix, which are read with it. */
function isOfQuantized(checkpoint: Checkpoint, name: string, used: ReadonlySet<string>): boolean {
  const weight = `${moduleOf(name)}.weight`;
  return /\.(scales|biases)$/.test(name) && used.has(weight) && checkpoint.info(weight).dtype === "u32";
}

/**
 * Refuses tensors that a model leaves out though they belong to what it computes: all of a layer that it uses or that stands
 * beside such layers, and of other modules those beside tensors that it uses. Layers that predict further tokens and other
 * whole modules may be left over.
 * `used`: names of the tensors that the model was bound to.
 * @throws MlxtsError `Safetensors` that names the first such tensor
 */
export function refuseUnused(checkpoint: Checkpoint, used: ReadonlySet<string>): void {
  const modules = new Set([...used].map(moduleOf));
  const layers = new Set([...used].map(layerOf));
  const lists = new Set([...used].map(listOf));
  const further = furtherLayers(checkpoint.names);
  for (const tensor of checkpoint.names) {
    if (used.has(tensor) || FREQUENCIES.test(tensor) || isOfQuantized(checkpoint, tensor, used)) continue;
    const layer = layerOf(tensor);
    const belongs =
      layer === undefined
        ? modules.has(moduleOf(tensor))
        : layers.has(layer) || (lists.has(listOf(tensor)) && !further.has(layer));
    if (!belongs) continue;
    const reason =
      "would be left out: the config does not ask for it, or the model's family has no use for it there; " +
      "without it results would be wrong";
    const { path } = checkpoint;
    throw new MlxtsError("Safetensors", `${path}: tensor ${tensor} ${reason}`, { path, tensor, reason });
  }
}
