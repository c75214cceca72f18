import { Device } from "@mlxts/core";
import { quantizeCheckpoint } from "@mlxts/models";
import { argument, command } from "./contract.ts";
import { choice } from "./options.ts";
import { checkOutputDirectory } from "./output_file.ts";
import { progressBar } from "./progress.ts";

export const quantize = command({
  name: "quantize",
  summary: "Quantize a Hugging Face checkpoint directory into one that mlx-lm and mlxts open.",
  arguments: {
    hfDir: argument("a directory with config.json and safetensors of f32, f16 or bf16"),
    outDir: argument("a directory to be made; it may exist if it is empty"),
  },
  options: {
    bits: choice("<n>", "bits of a weight", [4, 8], 4),
    groupSize: choice("<n>", "weights that share a scale", [32, 64, 128], 64),
  },
  async run({ hfDir, outDir, bits, groupSize }, signal) {
    checkOutputDirectory("quantize", "<out-dir>", outDir);
    using device = Device.open("cpu");
    const bar = progressBar();
    try {
      const { tensors, byteLength } = await quantizeCheckpoint(device, hfDir, outDir, {
        bits,
        groupSize,
        onProgress: bar.show,
        signal,
      });
      bar.stop();
      process.stdout.write(`${outDir}: ${tensors} tensors, ${byteLength.toLocaleString("en")} bytes\n`);
    } catch (error) {
      bar.stop();
      if (signal.aborted) process.stderr.write(`${outDir}: interrupted, nothing was written\n`);
      throw error;
    }
  },
});
