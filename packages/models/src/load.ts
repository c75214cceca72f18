import { join } from "node:path";
import {
  checkCallback,
  checkOptionNames,
  checkSignal,
  type Device,
  openCheckpoint,
  wrongKind,
  wrongValue,
} from "@mlxts/core";
import { quantizationOf } from "@mlxts/quant4";
import { checkDirectory, readEosId, readJson, readOptionalJson } from "@mlxts/text/node";
import { type ActivationDtype, activationDtypeFor, checkActivationDtype } from "./activation_dtype.ts";
import { type Approximation, checkApproximation } from "./approximation.ts";
import { checkDevice } from "./device.ts";
import { familyOf } from "./families.ts";
import { Fields } from "./fields.ts";
import { generationDefaults } from "./generation_config.ts";
import type { LanguageModel } from "./language_model.ts";
import { refuseUnused } from "./unused_tensors.ts";
import { Weights } from "./weights.ts";

export interface LoadOptions {
  /**
   * Dtype of activations, and so of caches. Default `auto`: the checkpoint's own, as in MLX, where the device computes faster
   * in it than in f32, and else f32.
   */
  activationDtype?: ActivationDtype;
  /**
   * How many bytes of memory the experts of all layers may take, for a model that is larger than memory. On the CPU only. A
   * layer keeps its most recently used experts; others are read from the checkpoint when a token needs them, and while a
   * pass over many tokens computes a layer, all experts that it needs are in memory. Results do not change.
   * Default: the system decides.
   */
  expertMemory?: number;
  /**
   * `int8-activations`: products with quantized matrices round what they multiply to bytes, as `quantizedMatmul` of
   * `@mlxts/quant4` says. Faster, and other numbers. On the CPU only; dense matrices stay exact. Default: all is exact.
   */
  approximate?: Approximation | undefined;
  /**
   * `false`: weights are read into memory, so that their files may change meanwhile. Default `true`: where the device reaches
   * mapped files they are mapped, and a file that becomes shorter ends the process with SIGBUS.
   */
  map?: boolean;
  /**
   * Called with the bytes of the checkpoint that are there, and how many it has: again and again while a device with memory
   * of its own copies them, once where they are mapped. What it throws ends the loading.
   */
  onProgress?: ((loaded: number, total: number) => void) | undefined;
  /** Cancels the loading, also while bytes are copied; nothing stays open. */
  signal?: AbortSignal;
}

/**
 * Opens a checkpoint directory as it is: `config.json` and safetensors, Hugging Face (bf16, f16, f32) or MLX quantized.
 * Its `model_type` decides which family of models opens it. Weights are mapped, not read, or copied once to a device with
 * memory of its own, and where `map` is false, while the event loop goes on.
 * @throws MlxtsError `Io`, `Safetensors`, `QuantConfig`; `InvalidArgument` for a config that no family takes; the reason of
 *   `signal` when it is aborted
 */
export async function loadModel(device: Device, directory: string, options: LoadOptions = {}): Promise<LanguageModel> {
  const op = "loadModel";
  checkDevice(op, device);
  checkDirectory(op, directory, "config.json");
  const names = {
    activationDtype: true,
    expertMemory: true,
    approximate: true,
    map: true,
    onProgress: true,
    signal: true,
  };
  checkOptionNames<LoadOptions>(op, options, names);
  const { expertMemory, approximate, map = true, onProgress, signal } = options;
  checkSignal(op, signal);
  checkCallback(op, "onProgress", onProgress);
  checkApproximation(op, device, approximate);
  if (typeof map !== "boolean") throw wrongKind(op, "map", "be a boolean", map);
  if (expertMemory !== undefined && !map)
    throw wrongValue(
      op,
      "expertMemory",
      "be left out where `map` is false: experts are read from mapped files",
      expertMemory,
    );
  const json = readJson(join(directory, "config.json"));
  const asked = checkActivationDtype(op, options.activationDtype ?? "auto");
  const family = familyOf(op, json);
  const config = family.readConfig(json);
  const quantization = quantizationOf(json);
  const generation = readOptionalJson(directory, "generation_config.json");
  const stopTokens = stopTokensOf(generation, json, readEosId(directory), config.vocabSize);
  const defaults = generationDefaults(generation);
  const checkpoint = await openCheckpoint(device, directory, { map, onProgress, signal });
  const weights = new Weights(checkpoint, quantization, { approximate, signal });
  try {
    const activationDtype = activationDtypeFor(asked, device, json, weights.checkpoint);
    const model = await family.load(weights, config, { stopTokens, activationDtype, generationDefaults: defaults });
    refuseUnused(weights.checkpoint, weights.used);
    if (expertMemory !== undefined) model.limitExperts(op, expertMemory);
    return model;
  } catch (error) {
    weights.dispose();
    throw error;
  }
}

/** The ids that end a text: of `generation_config.json`, else of `config.json`, and the tokenizer's, as in mlx-lm. */
function stopTokensOf(
  generation: Record<string, unknown> | undefined,
  config: Record<string, unknown>,
  eosId: number | undefined,
  vocabSize: number,
): readonly number[] {
  const text = new Fields(config).object("text_config");
  const ids =
    (generation && new Fields(generation, "generation_config").ids("eos_token_id")) ??
    new Fields(config).ids("eos_token_id") ??
    text.ids("eos_token_id") ??
    [];
  for (const id of ids)
    if (id >= vocabSize) throw wrongValue("loadModel", "eos_token_id", `be below the vocabulary size ${vocabSize}`, id);
  return eosId === undefined || eosId >= vocabSize || ids.includes(eosId) ? ids : [...ids, eosId];
}
