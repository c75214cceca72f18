// Models whose quantized products round what they multiply to bytes: how far that is from exact ones.
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { generate, type LanguageModel, loadModel, prefill, quantizeCheckpoint } from "../src/index.ts";
import { prompts, temporary, tiny, tiny4bit } from "./fixtures.ts";

const approximate = "int8-activations";
const onMetal = process.env.MLXTS_DEVICE === "metal";

/** Logits of all positions. */
async function allLogits(model: LanguageModel, ids: readonly number[]): Promise<Float32Array[]> {
  using state = model.newState({ capacity: ids.length });
  return await prefill(model, state, ids, { positions: ids.map((_, i) => i) });
}

const bestOf = (row: Float32Array) => row.indexOf(Math.max(...row));
/** −ln of the probability of a token. */
const lossOf = (row: Float32Array, id: number) =>
  Math.log(row.reduce((sum, value) => sum + Math.exp(value - (row[id] as number)), 0));

describe.skipIf(onMetal).each(DEVICES)("tiny-qwen3.5-4bit with int8 activations, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  // Each of the model's layers adds an error of its own: measured are 2.8e-2, 188 of 192 tokens and 4e-4 of the loss.
  it.each(["f32", "bf16"] as const)("differs as much as the README says, %s", async (activationDtype) => {
    using model = await loadModel(device, tiny4bit, { activationDtype, approximate });
    let [worst, agreed, loss, exactLoss] = [0, 0, 0, 0];
    using exact = await loadModel(device, tiny4bit, { activationDtype: "f32" });
    for (const { ids, fourBit } of prompts) {
      const text = [...ids, ...fourBit.greedy];
      const [rows, right] = [await allLogits(model, text), await allLogits(exact, text)];
      worst = Math.max(worst, compare(rows[ids.length - 1] as Float32Array, fourBit.mlxLogits).ratio);
      agreed += fourBit.greedy.filter((id, i) => bestOf(rows[ids.length - 1 + i] as Float32Array) === id).length;
      for (const [i, id] of text.slice(1).entries()) {
        loss += lossOf(rows[i] as Float32Array, id) / text.length;
        exactLoss += lossOf(right[i] as Float32Array, id) / text.length;
      }
    }
    expect(worst).toBeLessThan(3.5e-2);
    expect(agreed).toBeGreaterThanOrEqual(185);
    expect(Math.abs(loss - exactLoss) / prompts.length).toBeLessThan(5e-3);
    // Exact products are far nearer.
    expect(worst).toBeGreaterThan(activationDtype === "f32" ? 5e-3 : 1.2e-2);
  });

  it("decodes token by token as a prompt is computed", async () => {
    using model = await loadModel(device, tiny4bit, { approximate });
    const [{ ids, fourBit }] = prompts as [(typeof prompts)[0]];
    const generated: number[] = [];
    for await (const id of generate(model, ids, { maxTokens: 8, temperature: 0 })) generated.push(id);
    expect(generated).toEqual(fourBit.greedy.slice(0, 8));
  });
});

describe.skipIf(onMetal)("checkpoints with experts and int8 activations", () => {
  const device = Device.open("cpu");
  afterAll(() => device.dispose());

  it.each([
    ["tiny-qwen3-next", () => unpackedCheckpoint("tiny-qwen3-next")],
    ["tiny-deepseek-v3", () => unpackedCheckpoint("tiny-deepseek-v3")],
  ])("%s", async (_, source) => {
    const folder = join(temporary(), "out");
    await quantizeCheckpoint(device, source(), folder, { groupSize: 32, bits: 8 });
    using exact = await loadModel(device, folder);
    using model = await loadModel(device, folder, { approximate });
    const ids = prompts[1]?.ids.map((id) => id % exact.vocabSize) as number[];
    const rows = await Promise.all([model, exact].map((each) => allLogits(each, ids)));
    const [own, right] = rows.map((each) => Float32Array.from(each.flatMap((row) => [...row])));
    const { ratio } = compare(own as Float32Array, right as Float32Array);
    expect(ratio).toBeGreaterThan(2e-3);
    expect(ratio).toBeLessThan(8e-2);
  });

  it("dense matrices stay exact", async () => {
    const [{ ids }] = prompts as [(typeof prompts)[0]];
    using exact = await loadModel(device, tiny);
    using model = await loadModel(device, tiny, { approximate });
    expect(await allLogits(model, ids)).toEqual(await allLogits(exact, ids));
  });
});

describe("loadModel refuses", () => {
  const device = Device.open();
  afterAll(() => device.dispose());

  it.each(["int4-activations", "int8", "", true, 8, null])("%j", async (value) => {
    await expect(loadModel(device, tiny4bit, { approximate: value as never })).rejects.toMatchObject({
      code: "InvalidArgument",
      message: expect.stringContaining("loadModel: `approximate` must be one of int8-activations, got "),
    });
  });

  it.skipIf(!device.gpu)("any on a GPU", async () => {
    await expect(loadModel(device, tiny4bit, { approximate })).rejects.toThrow(
      "loadModel: `approximate` must be left out on a GPU, whose products are exact, got int8-activations",
    );
  });
});
