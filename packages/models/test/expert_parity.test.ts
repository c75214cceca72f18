import { Device } from "@mlxts/core";
import { fixture, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe } from "vitest";
import {
  itGivesWhatIsRecorded,
  itIsNearInBf16,
  itTakesAPromptInPieces,
  recordedLogits,
  recordedPrompts,
} from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

// The weights of the second are random, and let errors grow.
describe.each([
  { name: "tiny-qwen3-next", folder: unpackedCheckpoint("tiny-qwen3-next"), bf16: 3e-2 },
  { name: "tiny-qwen3.5-moe", folder: fixture("tiny-qwen3.5-moe"), bf16: 5e-2 },
] as const)("$name", ({ name, folder, bf16 }) => {
  const recorded = goldens(`${name}/reference.safetensors`);
  const prompts = recordedPrompts(recorded);
  const checkpoint = { device, folder: () => folder, prompts };

  describe("bf16 weights, against the original model code", () => {
    itGivesWhatIsRecorded(checkpoint, 1e-5);
    const inBf16 = name === "tiny-qwen3-next" ? goldens(`goldens/${name}.bf16.safetensors`) : undefined;
    itIsNearInBf16(checkpoint, bf16, inBf16 && recordedLogits(inBf16));
  });

  describe("fed in pieces", () => {
    const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]).slice(0, device.gpu ? 66 : 150);
    itTakesAPromptInPieces(checkpoint, long);
  });
});
