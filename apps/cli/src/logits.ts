import { Device, writeSafetensors } from "@mlxts/core";
import { type DeltaPath, loadModel, prefill } from "@mlxts/models";
import { type Command, Option } from "commander";
import { integer, tokenIds } from "./options.ts";

interface Options {
  ids: number[];
  every?: number;
  out: string;
  activations: "f32" | "f16" | "bf16";
  path: DeltaPath;
}

export function addLogits(program: Command): void {
  program
    .command("logits")
    .description("write the logits of token positions: tensor `logits` f32 [positions, vocab]")
    .argument("<checkpoint>", "a checkpoint directory")
    .requiredOption("--ids <ids>", "token ids, separated by commas", tokenIds)
    .option("--every <n>", "positions n-1, 2n-1, … instead of the last one", integer(1))
    .requiredOption("--out <file>", "a .safetensors file")
    .addOption(
      new Option("--activations <dtype>", "dtype of activations").choices(["f32", "f16", "bf16"]).default("f32"),
    )
    .addOption(
      new Option("--path <path>", "how the delta rule is computed")
        .choices(["auto", "recurrent", "chunk"])
        .default("auto"),
    )
    .action(async (directory: string, { ids, every, out, activations, path }: Options, command: Command) => {
      if (every !== undefined && every > ids.length)
        command.error(`error: --every must be at most the number of ids, ${ids.length}`, { exitCode: 2 });
      using device = Device.open();
      const model = await loadModel(device, directory, { activations });
      const positions =
        every === undefined ? [ids.length - 1] : ids.map((_, i) => i).filter((i) => (i + 1) % every === 0);
      const state = model.newState({ capacity: Math.min(model.contextLength, Math.max(1, ids.length)) });
      const rows = await prefill(model, state, ids, { positions, path });
      const data = new Float32Array(rows.length * model.vocabSize);
      for (const [i, row] of rows.entries()) data.set(row, i * model.vocabSize);
      writeSafetensors(out, [["logits", { dtype: "f32", shape: [rows.length, model.vocabSize], data }]]);
      process.stdout.write(
        `${out}: logits f32 [${rows.length}, ${model.vocabSize}] of position${rows.length > 1 ? "s" : ""} ${positions.join(", ")}\n`,
      );
      state.dispose();
      model.dispose();
    });
}
