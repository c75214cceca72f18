// Conversions of the tiny DeepSeek models, computed, against what mlx-lm computes of them in f32. deepseek_quantize.test.ts
// shows that they are those of mlx_lm.convert, word for word.
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { fixture, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadModel, quantizeCheckpoint } from "../src/index.ts";
import { temporary } from "./fixtures.ts";
import { itGivesWhatIsRecorded, itIsNearInBf16, lastLogits, recordedPrompts } from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

const tiny = unpackedCheckpoint("tiny-deepseek-v3");
const recorded = goldens("tiny-deepseek-v3/reference.safetensors");
const mlx = goldens("goldens/deepseek_4bit_logits.safetensors");
const v2 = goldens("goldens/deepseek_v2.safetensors");
const paths = ["auto", "folded", "materialized"] as const;

describe("tiny-deepseek-v3 in 4 bits, against mlx-lm in f32", () => {
  const out = join(temporary(), "out");
  beforeAll(async () => {
    await quantizeCheckpoint(device, tiny, out);
  });
  const checkpoint = { device, folder: () => out, prompts: recordedPrompts(recorded, mlx) };
  itGivesWhatIsRecorded(checkpoint, 4e-6);
  itIsNearInBf16(checkpoint, 3e-2);
});

// Groups of 128 leave embed_q as it is: its rows have 64 elements.
it.each([
  { bits: 4, groupSize: 64, outputs: "prompt0.logits" },
  { bits: 8, groupSize: 32, outputs: "8bit-g32.prompt0.logits" },
  { bits: 4, groupSize: 128, outputs: "4bit-g128.prompt0.logits" },
] as const)("$bits bits, groups of $groupSize: logits of mlx-lm on every path", async ({ outputs, ...packing }) => {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, tiny, out, packing);
  const ids = Array.from(recorded.numbers("prompt0.ids"));
  using model = await loadModel(device, out, { activationDtype: "f32" });
  for (const path of paths) {
    const logits = await lastLogits(model, ids, [], path);
    expect(compare(logits, mlx.numbers(outputs)).ratio, path).toBeLessThan(4e-6);
  }
});

it("tiny-deepseek-v2, which keeps kv_b_proj: logits of mlx-lm on every path", async () => {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, fixture("tiny-deepseek-v2"), out, { groupSize: 32 });
  using model = await loadModel(device, out, { activationDtype: "f32" });
  for (const i of [0, 1, 2])
    for (const path of model.paths) {
      const logits = await lastLogits(model, Array.from(v2.numbers(`prompt${i}.ids`)), [], path);
      const { ratio } = compare(logits, v2.numbers(`4bit-g32.prompt${i}.logits`));
      expect(ratio, `prompt${i}, ${path}`).toBeLessThan(4e-6);
    }
});
