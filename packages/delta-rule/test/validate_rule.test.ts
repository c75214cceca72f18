import { Device, FLOATS } from "@mlxts/core";
import { testedLevels } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { gatedDeltaRule, gatedDeltaRuleRecurrent } from "../src/index.ts";

const [B, T, Hk, H, K, V] = [2, 40, 2, 4, 16, 3] as const;
type Options = Parameters<typeof gatedDeltaRuleRecurrent>[2];

interface Setting {
  channels?: boolean;
  mask?: boolean;
  packed?: boolean;
  /** Of one head of one token; everything else keeps the state from growing. */
  g?: number;
  beta?: number;
  /** Elements of the key, of which four are not 0. */
  key?: number;
  token?: number;
  head?: number;
  options?: Partial<Options>;
  act?: (typeof FLOATS)[number];
}

const DEVICES: readonly (readonly [string, (validate: boolean) => Device])[] =
  process.env.MLXTS_DEVICE === "metal"
    ? [["metal", (validate) => Device.open("metal", { validate })]]
    : testedLevels().map((level) => [`cpu ${level}`, (validate) => Device.open("cpu", { level, validate })] as const);

/** Tensors of keys of length 1, beta 1 and neutral gates, but for the element that a setting changes. */
function inputs(device: Device, setting: Setting) {
  const { act = "f32", channels = false, token = 50, head = 2, options } = setting;
  const neutral = options?.gate === "linear" ? 1 : 0;
  const g = new Float32Array(B * T * H * (channels ? K : 1)).fill(neutral);
  // The last channel of the head.
  if (setting.g !== undefined) g[(token * H + head + 1) * (channels ? K : 1) - 1] = setting.g;
  // Heads that share the key are out of it.
  const beta = new Float32Array(B * T * H).fill(1).fill(0, token * H, (token + 1) * H);
  beta[token * H + head] = setting.beta ?? 1;
  const k = Float64Array.from({ length: B * T * Hk * K }, (_, i) => (i % 4 === 3 ? 0.5 : 0));
  const keyHead = options?.gqa === "tiled" ? head % Hk : Math.floor(head / (H / Hk));
  const { key } = setting;
  if (key !== undefined)
    k.subarray((token * Hk + keyHead) * K, (token * Hk + keyHead + 1) * K).forEach((x, i, row) => {
      row[i] = x && key;
    });
  const [rows, tokens] = setting.packed ? [1, B * T] : [B, T];
  return {
    q: device.tensor(act, [rows, tokens, Hk, K], k),
    k: device.tensor(act, [rows, tokens, Hk, K], k),
    v: device.tensor(act, [rows, tokens, H, V]),
    g: device.tensor("f32", [rows, tokens, H, ...(channels ? [K] : [])], g),
    beta: device.tensor("f32", [rows, tokens, H], beta),
    ...(setting.mask && {
      mask: device.tensor(
        "u8",
        [rows, tokens],
        Array.from({ length: B * T }, (_, at) => (at === token ? 0 : 1)),
      ),
    }),
    ...(setting.packed && { cuSeqlens: device.tensor("i32", [4], [0, 50, 50, B * T]) }),
  };
}

const GATE = "`g` must be a decay of at most 1";
const BETA = "`beta` must be at least 0";
const STEP = "`beta` must keep beta · |k|² at most 2";

const REFUSED: [string, Setting, string][] = [
  ["a gate of ln > 0", { g: 0.25 }, `${GATE}, got 0.25 at token 50, head 2`],
  ["in the first token", { g: 1e-30, token: 0, head: 0 }, `${GATE}, got 1e-30 at token 0, head 0`],
  ["in the last token", { g: 1, token: 79, head: 3 }, `${GATE}, got 1 at token 79, head 3`],
  ["a gate of log2 > 0", { g: 0.5, options: { gate: "log2" } }, `${GATE}, got 0.5 at token 50, head 2`],
  ["a gate of neg-ln < 0", { g: -0.125, options: { gate: "neg-ln" } }, `${GATE}, got -0.125 at token 50, head 2`],
  ["a linear gate > 1", { g: 1.5, options: { gate: "linear" } }, `${GATE}, got 1.5 at token 50, head 2`],
  ["a linear gate < 0", { g: -0.1, options: { gate: "linear" } }, `${GATE}, got -0.1 at token 50, head 2`],
  ["a gate of a channel", { g: 0.25, channels: true, head: 1 }, `${GATE}, got 0.25 at token 50, head 1`],
  [
    "a linear gate of a channel",
    { g: 1.125, channels: true, token: 79, options: { gate: "linear" } },
    `${GATE}, got 1.125 at token 79, head 2`,
  ],
  ["a negative beta", { beta: -0.5 }, `${BETA}, got -0.5 at token 50, head 2`],
  ["a negative beta of a key of zeros", { beta: -1e-9, key: 0 }, `${BETA}, got -1e-9 at token 50, head 2`],
  ["a step beyond 2", { beta: 2.01 }, `${STEP}, got 2.01 at token 50, head 2`],
  ["a step just beyond 2 + 1e-3", { beta: 2.0011 }, `${STEP}, got 2.0011 at token 50, head 2`],
  ["a long key", { key: 1, head: 3, token: 79 }, `${STEP}, got 4 at token 79, head 3`],
  ["a step among packed sequences", { beta: 3, packed: true }, `${STEP}, got 3 at token 50, head 2`],
  [
    "a key head of another map",
    { key: 4, beta: 0.25, head: 1, options: { gqa: "tiled" } },
    `${STEP}, got 16 at token 50, head 1`,
  ],
  [
    "a step with sum-eps",
    { beta: 2.5, key: 2, options: { qkNorm: "sum-eps", qkNormEps: 1e-6 } },
    `${STEP}, got 2.5 at token 50, head 2`,
  ],
  [
    "a step with a large eps of sum-eps",
    { beta: 4.5, options: { qkNorm: "sum-eps", qkNormEps: 1 } },
    `${STEP}, got 2.25 at token 50, head 2`,
  ],
  [
    "a step with mean-eps",
    { beta: 4.5, options: { qkNorm: "mean-eps", qkNormEps: 1 / K } },
    `${STEP}, got 2.25 at token 50, head 2`,
  ],
  [
    "a step with max-eps",
    { beta: 9, options: { qkNorm: "max-eps", qkNormEps: 2 } },
    `${STEP}, got 2.25 at token 50, head 2`,
  ],
  [
    "a step with max-eps and a longer key",
    { beta: 2.25, key: 2, options: { qkNorm: "max-eps", qkNormEps: 2 } },
    `${STEP}, got 2.25 at token 50, head 2`,
  ],
];

const ACCEPTED: [string, Setting][] = [
  ["what keeps everything", {}],
  ["decays", { g: -50 }],
  ["decays of channels", { g: -50, channels: true }],
  ["decays of neg-ln", { g: 50, options: { gate: "neg-ln" } }],
  ["decays of log2", { g: -3, options: { gate: "log2" } }],
  ["a linear decay of 0", { g: 0, options: { gate: "linear" } }],
  ["a beta of 0 and any key", { beta: 0, key: 100 }],
  ["a step of 2", { beta: 2 }],
  ["a step of 2 + 1e-3", { beta: 2.001 }],
  ["a long key that is normalized", { key: 100, options: { qkNorm: "sum-eps" } }],
  ["a large beta with a large eps of sum-eps", { beta: 4, options: { qkNorm: "sum-eps", qkNormEps: 1 } }],
  ["a large beta with mean-eps", { beta: 4, options: { qkNorm: "mean-eps", qkNormEps: 1 / K } }],
  ["a large beta with max-eps", { beta: 8, options: { qkNorm: "max-eps", qkNormEps: 2 } }],
  ["a masked gate", { g: 1, mask: true }],
  ["a masked gate of a channel", { g: 1, channels: true, mask: true }],
  ["a masked beta", { beta: -1, mask: true }],
  ["a masked step", { beta: 3, mask: true }],
  ["a masked token of NaN", { g: Number.NaN, beta: Number.NaN, key: Number.NaN, mask: true }],
];

for (const [name, open] of DEVICES)
  describe(`validation on ${name}`, () => {
    const device = open(true);
    const lax = open(false);
    afterAll(() => {
      device.dispose();
      lax.dispose();
    });
    const run = async (on: Device, setting: Setting) => {
      const encoder = on.encoder();
      gatedDeltaRuleRecurrent(encoder, inputs(on, setting), { scale: 1, ...setting.options });
      await encoder.commit();
    };
    it.each(REFUSED)("refuses %s, and only where it is asked to", async (_, setting, message) => {
      await expect(run(device, setting)).rejects.toMatchObject({
        code: "InvalidArgument",
        message: `gatedDeltaRuleRecurrent: ${message}`,
      });
      await run(lax, setting);
    });
    it.each(ACCEPTED)("accepts %s", async (_, setting) => await run(device, setting));

    it.each(FLOATS)("reads keys of %s", async (act) => {
      await run(device, { beta: 2, act });
      await expect(run(device, { beta: 3, act })).rejects.toThrow(`${STEP}, got 3 at token 50, head 2`);
    });

    // All the stages of chunks take the simulator's compiler long.
    const paths = device.gpu ? (["recurrent"] as const) : (["recurrent", "chunk"] as const);
    it.each(paths)("is a dispatch more of gatedDeltaRule, path %s", async (path) => {
      const encode = (on: Device) => {
        const encoder = on.encoder();
        gatedDeltaRule(encoder, inputs(on, { g: 0.25 }), { scale: 1, path });
        return encoder;
      };
      await expect(encode(device).commit()).rejects.toThrow(`gatedDeltaRule: ${GATE}, got 0.25 at token 50, head 2`);
      expect(encode(device).finish().dispatches - encode(lax).finish().dispatches).toBe(1);
    });
  });
