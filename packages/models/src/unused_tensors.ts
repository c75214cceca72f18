import { type Checkpoint, MlxtsError } from "@mlxts/core";

/** What stands before the names of a layer's tensors. */
const LAYER = /^.*?\blayers\.\d+\./;
/** Frequencies that some checkpoints store though they follow from the config. */
const FREQUENCIES = /\brotary_emb\.inv_freq$/;

const moduleOf = (name: string): string => name.slice(0, name.lastIndexOf("."));

/** Whether a tensor holds the scales or biases of a quantized matrix, which are read with it. */
function isOfQuantized(checkpoint: Checkpoint, name: string, used: ReadonlySet<string>): boolean {
  const weight = `${moduleOf(name)}.weight`;
  return /\.(scales|biases)$/.test(name) && used.has(weight) && checkpoint.info(weight).dtype === "u32";
}

/**
 * Refuses tensors that a model leaves out though they belong to what it computes: all of a layer that it uses, and of other
 * modules those beside tensors that it uses. Whole layers and modules may be left over, as those that predict further tokens.
 * `used`: names of the tensors that the model was bound to.
 * @throws MlxtsError `Safetensors` that names the first such tensor
 */
export function refuseUnused(checkpoint: Checkpoint, used: ReadonlySet<string>): void {
  const modules = new Set([...used].map(moduleOf));
  const layers = new Set([...used].map((name) => LAYER.exec(name)?.[0]));
  for (const tensor of checkpoint.names) {
    if (used.has(tensor) || FREQUENCIES.test(tensor) || isOfQuantized(checkpoint, tensor, used)) continue;
    const layer = LAYER.exec(tensor)?.[0];
    if (!(layer === undefined ? modules.has(moduleOf(tensor)) : layers.has(layer))) continue;
    const reason =
      "would be left out: the config does not ask for it, or the model's family has no use for it there; " +
      "without it results would be wrong";
    const { path } = checkpoint;
    throw new MlxtsError("Safetensors", `${path}: tensor ${tensor} ${reason}`, { path, tensor, reason });
  }
}
