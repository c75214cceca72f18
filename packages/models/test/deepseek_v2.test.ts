// DeepSeek-V2, with V2-Lite's shape (queries from one matrix, softmax routing), against transformers: a tiny
// random checkpoint under three configs.
import { Device } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { fixture, goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel } from "../src/index.ts";
import { withConfig } from "./fixtures.ts";
import { greedyTokens, lastLogits } from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

const tinyV2 = fixture("tiny-deepseek-v2");
const recorded = goldens("goldens/deepseek_v2.safetensors");
const prompts = [0, 1, 2].map((i) => ({ name: `prompt${i}`, ids: Array.from(recorded.numbers(`prompt${i}.ids`)) }));

const variants: Record<string, Record<string, unknown>> = {
  greedy: {},
  groups: { topk_method: "group_limited_greedy", n_group: 4, topk_group: 2, routed_scaling_factor: 4 },
  plain_rope: { rope_parameters: { rope_type: "default", rope_theta: 10000 } },
};

describe.each(Object.entries(variants))("tiny-deepseek-v2: %s", (variant, changes) => {
  const folder = withConfig((config) => Object.assign(config, changes), tinyV2);

  it("last-position logits within ratio 1e-5 on every path, and greedy tokens identical", async () => {
    using model = await loadModel(device, folder, { activationDtype: "f32" });
    expect(model.modelType).toBe("deepseek_v2");
    for (const { name, ids } of prompts) {
      for (const path of model.paths) {
        const { ratio } = compare(
          await lastLogits(model, ids, [], path),
          recorded.numbers(`${variant}.${name}.logits`),
        );
        expect(ratio, `${name}, ${path}`).toBeLessThanOrEqual(1e-5);
      }
      // A simulated GPU is slow.
      const count = device.gpu ? 8 : 64;
      const greedy = Array.from(recorded.numbers(`${variant}.${name}.greedy`));
      expect(await greedyTokens(model, ids, count), name).toEqual(greedy.slice(0, count));
    }
  });
});

it("the configs give different logits", () => {
  const names = Object.keys(variants).map((variant) => recorded.numbers(`${variant}.prompt0.logits`));
  for (const [i, a] of names.entries())
    for (const b of names.slice(i + 1)) expect(compare(a, b).ratio).toBeGreaterThan(1e-2);
});

it("older names of the rotary embedding mean the same", async () => {
  const [prompt] = prompts as [(typeof prompts)[number]];
  const folder = withConfig((config) => {
    const { rope_theta, rope_type, ...rest } = config.rope_parameters as Record<string, unknown>;
    Object.assign(config, { rope_theta, rope_scaling: { ...rest, type: rope_type } });
    delete config.rope_parameters;
  }, tinyV2);
  using model = await loadModel(device, folder, { activationDtype: "f32" });
  const { ratio } = compare(await lastLogits(model, prompt.ids), recorded.numbers("greedy.prompt0.logits"));
  expect(ratio).toBeLessThanOrEqual(1e-5);
});
