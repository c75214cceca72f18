import { Device, writeSafetensors } from "@mlxts/core";
import { MODEL_PATHS, prefill } from "@mlxts/models";
import { activationDtype, approximate, noMap } from "./activation_option.ts";
import { argument, command } from "./contract.ts";
import { loadModelWithBar } from "./load_model.ts";
import { choice, flag, integer, path, required, tokenIds, UsageError } from "./options.ts";
import { outputFile } from "./output_file.ts";

export const logits = command({
  name: "logits",
  summary: "Write the logits of token positions: tensor `logits` f32 [positions, vocab].",
  arguments: { checkpoint: argument("a checkpoint directory") },
  options: {
    ids: required(tokenIds("token ids, separated by commas")),
    every: integer("<n>", "positions n-1, 2n-1, … instead of the last one", { min: 1 }),
    out: required(path("<file>", "a .safetensors file to be written; an older one is replaced")),
    force: flag("replace even a file of the checkpoint"),
    activationDtype,
    approximate,
    noMap,
    expertMemory: integer("<bytes>", "memory that experts may take, for a model that is larger than memory", {
      min: 1,
    }),
    path: choice("<path>", "how the prompt is computed, where the model has a choice", MODEL_PATHS),
  },
  async run({ checkpoint, ids, every, out, force, activationDtype, approximate, noMap, expertMemory, path }, signal) {
    if (every !== undefined && every > ids.length)
      throw new UsageError("logits", "--every", `be at most the number of ids, ${ids.length}`, String(every));
    const target = outputFile("logits", "--out", out, { inputs: [checkpoint], force });
    using device = Device.open();
    using model = await loadModelWithBar(device, checkpoint, {
      activationDtype,
      approximate,
      map: !noMap,
      ...(expertMemory !== undefined && { expertMemory }),
      signal,
    });
    const positions =
      every === undefined ? [ids.length - 1] : ids.map((_, i) => i).filter((i) => (i + 1) % every === 0);
    using state = model.newState({ capacity: Math.min(model.contextLength, Math.max(1, ids.length)) });
    const rows = await prefill(model, state, ids, { positions, ...(path && { path }), signal });
    const data = new Float32Array(rows.length * model.vocabSize);
    for (const [i, row] of rows.entries()) data.set(row, i * model.vocabSize);
    writeSafetensors(target, [["logits", { dtype: "f32", shape: [rows.length, model.vocabSize], data }]]);
    process.stdout.write(
      `${out}: logits f32 [${rows.length}, ${model.vocabSize}] of position${rows.length > 1 ? "s" : ""} ${positions.join(", ")}\n`,
    );
  },
});
