// What the dtype of activations costs in accuracy, and rounding them to bytes: node scripts/run-source.mjs packages/models/bench/activation_dtypes.ts.
// The tiny trained checkpoints against the outputs of their original code, and the perplexity of a file of TypeScript's.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Device, type FloatDtype } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { type Approximation, type LanguageModel, loadModel, prefill, readJson, Tokenizer } from "@mlxts/models";
import { quantizationOf } from "@mlxts/quant4";
import { fixture, type Goldens, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";

const reference = (name: string) => goldens(`${name}/reference.safetensors`);
const mlx = goldens("goldens/mlx_lm_4bit_logits.safetensors");
const tiny = reference("tiny-qwen3.5");
const checkpoints: { folder: string; prompts: Goldens; outputs: Goldens; suffix: string }[] = [
  { folder: fixture("tiny-qwen3.5"), prompts: tiny, outputs: tiny, suffix: "" },
  { folder: fixture("tiny-qwen3.5-4bit"), prompts: tiny, outputs: mlx, suffix: ".mlx_f32" },
  ...["tiny-qwen3-next", "tiny-deepseek-v3"].map((name) => ({
    folder: unpackedCheckpoint(name),
    prompts: reference(name),
    outputs: reference(name),
    suffix: "",
  })),
];
/** Texts of the kind that the models were trained with, in pieces. */
const text = readFileSync(createRequire(import.meta.url).resolve("typescript/lib/lib.es5.d.ts"), "utf8");
const ids = new Tokenizer(fixture("tiny-qwen3.5")).encode(text);
const [PIECES, TOKENS] = [16, 512];
const pieces = Array.from({ length: PIECES }, (_, i) => ids.slice(i * TOKENS, (i + 1) * TOKENS));

/** Logits of every position. */
async function allLogits(model: LanguageModel, ids: readonly number[]): Promise<Float32Array[]> {
  using state = model.newState({ capacity: ids.length });
  return await prefill(model, state, ids, { positions: ids.map((_, i) => i) });
}

const bestOf = (row: Float32Array) => row.reduce((best, value, i) => (value > (row[best] as number) ? i : best), 0);

/** −ln of the probability of a token. */
function loss(row: Float32Array, id: number): number {
  const most = row[bestOf(row)] as number;
  const sum = row.reduce((all, value) => all + Math.exp(value - most), 0);
  return Math.log(sum) + most - (row[id] as number);
}

using device = Device.open("cpu");
console.log(`| level ${device.level} | activations | logits, ratio | greedy tokens | top 1 as f32 | perplexity |`);
console.log("| --- | --- | --- | --- | --- | --- |");
for (const { folder, prompts, outputs, suffix } of checkpoints) {
  let exact: number[] = [];
  const isQuantized = quantizationOf(readJson(join(folder, "config.json"))) !== undefined;
  const forms: [FloatDtype, Approximation?][] = [
    ["f32"],
    ["f16"],
    ["bf16"],
    ...(isQuantized
      ? (["f32", "bf16"] as const).map((dtype) => [dtype, "int8-activations"] as [FloatDtype, Approximation])
      : []),
  ];
  for (const [activationDtype, approximate] of forms) {
    using model = await loadModel(device, folder, { activationDtype, approximate });
    let [worst, agreed, all] = [0, 0, 0];
    for (const i of [0, 1, 2]) {
      const prompt = Array.from(prompts.numbers(`prompt${i}.ids`));
      const greedy = Array.from(outputs.numbers(`prompt${i}.greedy${suffix}`));
      const rows = (await allLogits(model, [...prompt, ...greedy])).slice(prompt.length - 1, -1);
      worst = Math.max(worst, compare(rows[0] as Float32Array, outputs.numbers(`prompt${i}.logits${suffix}`)).ratio);
      agreed += rows.filter((row, at) => bestOf(row) === greedy[at]).length;
      all += greedy.length;
    }
    const best: number[] = [];
    let losses = 0;
    for (const piece of pieces)
      for (const [i, row] of (await allLogits(model, piece)).slice(0, -1).entries()) {
        best.push(bestOf(row));
        losses += loss(row, piece[i + 1] as number);
      }
    const perplexity = Math.exp(losses / best.length);
    if (exact.length === 0) exact = best;
    const same = best.filter((id, i) => id === exact[i]).length / best.length;
    const name = folder.split("/").at(-1);
    console.log(
      `| ${name} | ${activationDtype}${approximate ? `, ${approximate}` : ""} | ${worst.toExponential(1)} | ${agreed} of ${all} | ${(100 * same).toFixed(2)} % | ${perplexity.toFixed(4)} |`,
    );
  }
}
