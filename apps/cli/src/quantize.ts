import { Device } from "@mlxts/core";
import { type QuantizeOptions, quantizeCheckpoint } from "@mlxts/models";
import { Presets, SingleBar } from "cli-progress";
import type { Command } from "commander";
import { integer } from "./options.ts";

export function addQuantize(program: Command): void {
  program
    .command("quantize")
    .description("quantise a Hugging Face checkpoint directory into one that mlx-lm and mlxts open")
    .argument("<hf-dir>")
    .argument("<out-dir>", "new or empty")
    .option("--bits <n>", "4 or 8", integer(1, 32), 4)
    .option("--group-size <n>", "32, 64 or 128", integer(1), 64)
    .action(async (from: string, to: string, options: { bits: number; groupSize: number }) => {
      using device = Device.open("cpu");
      const bar = new SingleBar(
        { format: "{bar} {value}/{total} {name}", stream: process.stderr, clearOnComplete: true },
        Presets.shades_classic,
      );
      let started = false;
      const onProgress: QuantizeOptions["onProgress"] = (done, total, name) => {
        if (!started) bar.start(total, 0, { name });
        started = true;
        bar.update(done, { name });
      };
      try {
        const { tensors, bytes } = await quantizeCheckpoint(device, from, to, {
          bits: options.bits as 4 | 8,
          groupSize: options.groupSize as 32 | 64 | 128,
          onProgress,
        });
        if (started) bar.stop();
        process.stdout.write(`${to}: ${tensors} tensors, ${bytes.toLocaleString("en")} bytes\n`);
      } finally {
        if (started) bar.stop();
      }
    });
}
