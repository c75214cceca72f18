import { statSync } from "node:fs";
import { Device, openCheckpoint } from "@mlxts/core";
import { readOptionalJson } from "@mlxts/models";
import { quantisationOf } from "@mlxts/quant4";
import type { Command } from "commander";

/** Names come from the file: what would steer a terminal is shown, not sent. */
const plain = (text: string) =>
  JSON.stringify(text)
    .slice(1, -1)
    .replace(/[\u007f-\u009f]/g, "?");

export function addInspect(program: Command): void {
  program
    .command("inspect")
    .description("show what a checkpoint (directory or .safetensors file) holds")
    .argument("<checkpoint>")
    .option("--tensors", "list every tensor")
    .option("--json", "print JSON")
    .action((path: string, options: { tensors?: boolean; json?: boolean }) => {
      using device = Device.open("cpu");
      using checkpoint = openCheckpoint(device, path);
      const config = statSync(path).isDirectory() ? readOptionalJson(path, "config.json") : undefined;
      const quantisation = config && quantisationOf(config);
      const tensors = checkpoint.names.map((name) => ({ name, ...checkpoint.info(name) }));
      const dtypes: Record<string, number> = {};
      let elements = 0;
      for (const { stored, shape } of tensors) {
        dtypes[stored] = (dtypes[stored] ?? 0) + 1;
        elements += shape.reduce((a, b) => a * b, 1);
      }
      const summary = {
        path,
        modelType: config?.model_type ?? null,
        tensors: tensors.length,
        elements,
        bytes: checkpoint.bytes,
        dtypes,
        quantisation: quantisation
          ? { bits: quantisation.bits, groupSize: quantisation.groupSize, mode: quantisation.mode }
          : null,
        metadata: checkpoint.metadata,
      };
      if (options.json) {
        process.stdout.write(
          `${JSON.stringify(options.tensors ? { ...summary, list: tensors, config } : { ...summary, config }, null, 2)}\n`,
        );
        return;
      }
      const lines = [
        `checkpoint  ${path}`,
        `model type  ${plain(String(summary.modelType ?? "(no config.json)"))}`,
        `tensors     ${tensors.length} (${Object.entries(dtypes)
          .map(([dtype, count]) => `${count} ${dtype}`)
          .join(", ")})`,
        `elements    ${elements.toLocaleString("en")}`,
        `bytes       ${checkpoint.bytes.toLocaleString("en")}`,
        `quantised   ${quantisation ? `${quantisation.bits} bits, groups of ${quantisation.groupSize}, ${quantisation.mode}` : "no"}`,
      ];
      if (options.tensors)
        lines.push(
          ...tensors.map(({ name, stored, shape }) => `  ${stored.padEnd(4)} [${shape.join(", ")}]  ${plain(name)}`),
        );
      process.stdout.write(`${lines.join("\n")}\n`);
    });
}
