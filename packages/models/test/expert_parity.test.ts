import { join } from "node:path";
import { Device } from "@mlxts/core";
import { fixture, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { firstRing } from "@mlxts/test-kit/rings";
import { afterAll, beforeAll, describe } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { temporary } from "./fixtures.ts";
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
  { name: "tiny-qwen3-next", folder: unpackedCheckpoint("tiny-qwen3-next"), groupSize: 64, bf16: 3e-2 },
  { name: "tiny-qwen3.5-moe", folder: fixture("tiny-qwen3.5-moe"), groupSize: 32, bf16: 5e-2 },
] as const)("$name", ({ name, folder, groupSize, bf16 }) => {
  const recorded = goldens(`${name}/reference.safetensors`);
  const prompts = recordedPrompts(recorded);
  const checkpoint = { device, folder: () => folder, prompts };

  describe("bf16 weights, against the original model code", () => {
    itGivesWhatIsRecorded(checkpoint, 1e-5);
    const inBf16 = name === "tiny-qwen3-next" ? goldens(`goldens/${name}.bf16.safetensors`) : undefined;
    itIsNearInBf16(checkpoint, bf16, inBf16 && recordedLogits(inBf16));
  });

  const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);

  describe("fed in pieces", () => {
    itTakesAPromptInPieces(checkpoint, long.slice(0, device.gpu || firstRing ? 66 : 150));
  });

  describe("4 bits, against mlx-lm's own conversion", () => {
    const out = join(temporary(), "out");
    // It has the bits of mlx_lm.convert: see expert_quantize.test.ts.
    beforeAll(() => quantizeCheckpoint(device, folder, out, { bits: 4, groupSize }));
    const ofMlx = recordedPrompts(recorded, goldens(`goldens/${name}.mlx_lm.safetensors`));
    const quantized = { device, folder: () => out, prompts: ofMlx };
    itGivesWhatIsRecorded(quantized, 4e-6);
    itIsNearInBf16(quantized, bf16);
    itTakesAPromptInPieces(quantized, long.slice(0, device.gpu || firstRing ? 34 : 100));
  });
});
