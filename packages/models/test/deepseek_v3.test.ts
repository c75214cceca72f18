// The tiny DeepSeek-V3 against the recorded outputs of the original model code.
import { Device } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel } from "../src/index.ts";
import {
  itGivesWhatIsRecorded,
  itIsNearInBf16,
  itTakesAPromptInPieces,
  lastLogits,
  recordedPrompts,
} from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

const tiny = unpackedCheckpoint("tiny-deepseek-v3");
const recorded = goldens("tiny-deepseek-v3/reference.safetensors");
const prompts = recordedPrompts(recorded);
const paths = ["auto", "folded", "materialized"] as const;

describe("tiny-deepseek-v3, bf16 weights, against the original model code", () => {
  const checkpoint = { device, folder: () => tiny, prompts };
  itGivesWhatIsRecorded(checkpoint, 1e-5);
  itIsNearInBf16(checkpoint, 3e-2);

  it.each(paths)("logits within ratio 1e-5 on the path %s", async (path) => {
    using model = await loadModel(device, tiny, { activationDtype: "f32" });
    for (const { ids, logits } of prompts)
      expect(compare(await lastLogits(model, ids, [], path), logits).ratio).toBeLessThanOrEqual(1e-5);
  });
});

describe("tiny-deepseek-v3, fed in pieces", () => {
  const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]).slice(0, device.gpu ? 66 : 150);
  itTakesAPromptInPieces({ device, folder: () => tiny, prompts }, long);
});
