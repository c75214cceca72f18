// Hostile values of every field of the configs of models with experts: an error that is ours, or a model that computes
// finite numbers.
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { repeated } from "@mlxts/test-kit/rings";
import { afterAll, expect, it } from "vitest";
import { loadModel, prefill } from "../src/index.ts";
import { liveBuffers, temporary } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

type Json = Record<string, unknown>;

const ALL_VALUES: readonly unknown[] = [null, -1, 2 ** 31, 0, 3, 0.5, 1e300, 1e-300, "8", [], {}];
const VALUES = ALL_VALUES.slice(0, repeated(ALL_VALUES.length));
/** Fields that configs of some checkpoints have. */
const MORE = [
  ...["quantization", "rope_scaling", "layer_types", "full_attention_interval", "partial_rotary_factor", "head_dim"],
  ...["rope_theta", "q_lora_rank", "topk_method", "scoring_func", "n_group", "topk_group", "moe_layer_freq"],
  ...["decoder_sparse_step", "mlp_only_layers"],
];
const MORE_OF_ROPE = ["factor", "type", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"];

const CODES = ["InvalidArgument", "Safetensors", "QuantConfig", "UnsupportedDtype"];

/** What is wrong with how a checkpoint is opened or computes; undefined if nothing is. */
async function fault(folder: string): Promise<string | undefined> {
  let model: Awaited<ReturnType<typeof loadModel>>;
  try {
    model = await loadModel(device, folder, { activationDtype: "f32" });
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    const names = code !== "InvalidArgument" || /`(config\.|eos_token_id)/.test(message);
    return CODES.includes(code ?? "") && names ? undefined : `refused with ${code}: ${message}`;
  }
  using state = model.newState({ capacity: 4 });
  try {
    const [logits] = await prefill(model, state, [1, 2]);
    return logits?.every(Number.isFinite) ? undefined : "computes NaN or infinity";
  } catch (error) {
    return `is loaded, and fails in a pass: ${(error as Error).message}`;
  } finally {
    model.dispose();
  }
}

it.each([
  ["qwen3_5_moe", fixture("tiny-qwen3.5-moe")],
  ["deepseek_v2", fixture("tiny-deepseek-v2")],
  ["deepseek_v3", unpackedCheckpoint("tiny-deepseek-v3")],
  ["qwen3_next", unpackedCheckpoint("tiny-qwen3-next")],
])(
  "%s",
  async (_, from) => {
    const folder = temporary();
    symlinkSync(join(from, "model.safetensors"), join(folder, "model.safetensors"));
    const config = JSON.parse(readFileSync(join(from, "config.json"), "utf8")) as Json;
    const text = (config.text_config ?? config) as Json;
    const rope = text.rope_parameters as Json;
    const fields: [Json, string][] = [
      ...[...new Set([...Object.keys(text), ...MORE])].map((name): [Json, string] => [text, name]),
      ...(text === config ? [] : Object.keys(config).map((name): [Json, string] => [config, name])),
      ...[...new Set([...Object.keys(rope), ...MORE_OF_ROPE])].map((name): [Json, string] => [rope, name]),
    ];
    const before = await liveBuffers(device);
    const faults: string[] = [];
    for (const [object, name] of fields) {
      const own = Object.getOwnPropertyDescriptor(object, name);
      for (const value of VALUES) {
        object[name] = value;
        writeFileSync(join(folder, "config.json"), JSON.stringify(config));
        const found = await fault(folder);
        if (found) faults.push(`${name} = ${JSON.stringify(value)}: ${found}`);
      }
      if (own) Object.defineProperty(object, name, own);
      else delete object[name];
    }
    expect(faults).toEqual([]);
    expect(await liveBuffers(device)).toBe(before);
  },
  120_000,
);
