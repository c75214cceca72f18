import { lstatSync } from "node:fs";
import { join } from "node:path";
import { type Device, explainTruncatedFiles } from "@mlxts/core";
import { type LanguageModel, type LoadOptions, loadModel } from "@mlxts/models";
import { progressBar } from "./progress.ts";

const inMegabytes = (bytes: number) => Math.floor(bytes / 1e6);

/** Loads a model, with a progress bar while a GPU with memory of its own is given the weights. */
export async function loadModelWithBar(
  device: Device,
  directory: string,
  options: LoadOptions,
): Promise<LanguageModel> {
  explainTruncatedFiles();
  const bar = progressBar();
  const onProgress = (loaded: number, total: number) => {
    if (loaded < total) bar.show(inMegabytes(loaded), inMegabytes(total), "MB of weights");
  };
  return await loadModel(device, directory, { ...options, onProgress }).finally(bar.stop);
}

/** Whether a checkpoint has a tokenizer, also one that cannot be read: reading it then says why. */
export const hasTokenizer = (checkpoint: string): boolean =>
  lstatSync(join(checkpoint, "tokenizer.json"), { throwIfNoEntry: false }) !== undefined;
