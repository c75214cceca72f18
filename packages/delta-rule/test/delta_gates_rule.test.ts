// The fused op, and what the rule of fusion makes of the two ops, has the bits of the two.
import {
  arenaBytes,
  type CommandEncoder,
  type Device,
  FLOATS,
  type FloatDtype,
  type RawArray,
  type Tensor,
} from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { deltaFusions, deltaGates, deltaGatesRule, gatedDeltaRule } from "../src/index.ts";

interface Setting {
  B: number;
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
  act: FloatDtype;
  cu?: readonly number[];
  masked?: boolean;
  keeps?: boolean;
  gates?: { betaScale?: number; lowerBound?: number };
  options?: Record<string, unknown>;
}

type Inputs = Parameters<typeof deltaGatesRule>[1];
type Options = Parameters<typeof deltaGatesRule>[2];

const random = new Random(41);
const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

function inputsOf(device: Device, { B, T, Hk, H, K, V, act, cu, masked, options }: Setting): Inputs {
  const drawn = (dtype: FloatDtype, shape: readonly number[], scale = 1) =>
    device.tensor(dtype, shape, random.normals(size(shape), scale));
  const N = cu ? cu.length - 1 : B;
  return {
    q: drawn(act, [B, T, Hk, K]),
    k: drawn(act, [B, T, Hk, K]),
    v: drawn(act, [B, T, H, V]),
    // Some so large that softplus is the number itself.
    a: drawn(act, [B, T, H], 9),
    b: drawn(act, [B, T, H], 3),
    aLog: drawn("f32", [H]),
    dtBias: drawn("f32", [H], 3),
    initialState: drawn("f32", [N, H, ...(options?.stateLayout === "kv" ? [K, V] : [V, K])]),
    ...(cu && { cuSeqlens: device.tensor("i32", [N + 1], cu) }),
    ...(masked && {
      mask: device.tensor(
        "u8",
        [B, T],
        Array.from({ length: B * T }, (_, i) => (i % 3 === 1 ? 0 : 1)),
      ),
    }),
  };
}

const ALL = {
  finalState: true,
  lastStates: true,
  logState: true,
  logKeys: true,
  logDeltas: true,
  logGates: true,
} as const;

const asks = ({ keeps }: Setting) => (keeps ? { ...ALL, snapshots: true as const } : { finalState: true as const });
const keeping = ({ keeps }: Setting) => (keeps ? { lastTokens: 4, snapshotEvery: 16 } : {});

/** The two ops; g and beta as a layer has them, with one dimension for all tokens. */
function chain(encoder: CommandEncoder, setting: Setting, { a, b, aLog, dtBias, ...inputs }: Inputs, options: Options) {
  const { betaScale: _, lowerBound: __, ...ruleOptions } = options;
  const { B, T, H, gates } = setting;
  const flat = [B * T, H];
  const { g, beta } = deltaGates(encoder, { a: a.reshape(flat), b: b.reshape(flat), aLog, dtBias }, gates);
  const given = { ...inputs, g: g.reshape([B, T, H]), beta: beta.reshape([B, T, H]), ...asks(setting) };
  return gatedDeltaRule(encoder, given as Parameters<typeof gatedDeltaRule>[1], ruleOptions);
}

const optionsOf = (setting: Setting): Options => ({
  scale: setting.K ** -0.5,
  qkNorm: "sum-eps",
  chunkLength: 16,
  ...keeping(setting),
  ...setting.gates,
  ...setting.options,
});

async function read(outputs: object): Promise<Record<string, RawArray>> {
  const entries = Object.entries(outputs).filter(([, tensor]) => tensor);
  return Object.fromEntries(await Promise.all(entries.map(async ([name, t]) => [name, await (t as Tensor).read()])));
}

function expectSame(fused: Record<string, RawArray>, two: Record<string, RawArray>, setting: Setting): void {
  expect(Object.keys(fused).sort()).toEqual(Object.keys(two).sort());
  for (const [name, bits] of Object.entries(two))
    expect(sameBytes(fused[name] as RawArray, bits), `${name} of ${JSON.stringify(setting)}`).toBe(true);
}

const SMALL = { B: 1, T: 1, Hk: 2, H: 4, K: 24, V: 20 };
const SETTINGS: Omit<Setting, "act">[] = [
  SMALL,
  { ...SMALL, B: 3 },
  { ...SMALL, T: 7, H: 6, gates: { betaScale: 2 }, options: { path: "recurrent", gqa: "tiled" } },
  { ...SMALL, T: 40, K: 65, V: 33, gates: { lowerBound: -5 }, options: { path: "recurrent", stateLayout: "kv" } },
  { ...SMALL, T: 37, keeps: true, options: { path: "recurrent" } },
  { ...SMALL, T: 37, keeps: true, masked: true, B: 2, options: { path: "recurrent" } },
  { ...SMALL, T: 40, keeps: true, cu: [0, 3, 3, 40], options: { path: "recurrent" } },
  { ...SMALL, T: 40, options: { path: "chunk" } },
  { ...SMALL, T: 41, keeps: true, masked: true, options: { path: "chunk" } },
  { ...SMALL, T: 40, keeps: true, cu: [0, 3, 3, 40], gates: { betaScale: 2 }, options: { path: "chunk" } },
];

describe.each(DEVICES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());

  it.each(FLOATS)("%s: the fused op", async (act) => {
    for (const each of SETTINGS) {
      const setting = { ...each, act };
      const inputs = inputsOf(device, setting);
      const options = optionsOf(setting);
      const encoder = device.encoder();
      const fused = deltaGatesRule(encoder, { ...inputs, ...asks(setting) } as Inputs, options);
      const two = chain(encoder, setting, inputs, options);
      await encoder.commit();
      expectSame(await read(fused), await read(two), setting);
    }
  });

  it("with an arena, whose scratch comes back", async () => {
    for (const path of ["recurrent", "chunk"] as const) {
      const setting: Setting = { ...SMALL, T: 40, keeps: true, act: "bf16", options: { path } };
      const inputs = inputsOf(device, setting);
      using arena = device.arena(1 << 20);
      const encoder = device.encoder({ arena });
      const outputs = deltaGatesRule(encoder, { ...inputs, ...asks(setting) } as Inputs, optionsOf(setting));
      const bytes = Object.values(outputs).map((tensor) => (tensor ? arenaBytes(tensor.dtype, tensor.shape) : 0));
      expect(arena.used).toBe(bytes.reduce((sum, each) => sum + each, 0));
      const two = device.encoder();
      const expected = chain(two, setting, inputs, optionsOf(setting));
      await encoder.commit();
      await two.commit();
      expectSame(await read(outputs), await read(expected), setting);
    }
  });

  it.each(FLOATS)("%s: what an encoder that optimizes makes of the two ops", async (act) => {
    for (const each of SETTINGS) {
      const setting = { ...each, act };
      const inputs = inputsOf(device, setting);
      const options = optionsOf(setting);
      const before = device.counters.fusedPairs;
      const optimizing = device.encoder({ optimize: { fuse: deltaFusions } });
      const fused = chain(optimizing, setting, inputs, options);
      const keep = Object.values(fused).filter((tensor) => tensor !== undefined) as Tensor[];
      await optimizing.commit({ keep });
      const apart = setting.options?.path === "chunk" || device.validate;
      expect(device.counters.fusedPairs - before).toBe(apart ? 0 : 1);
      const plain = device.encoder();
      const two = chain(plain, setting, inputs, options);
      await plain.commit();
      expectSame(await read(fused), await read(two), setting);
    }
  });

  it("the two stay apart when somebody else reads g, or it is no natural logarithm", async () => {
    const setting: Setting = { ...SMALL, act: "f32" };
    const { a, b, aLog, dtBias, ...inputs } = inputsOf(device, setting);
    for (const [gate, keepsGates] of [
      ["ln", true],
      ["log2", false],
    ] as const) {
      const before = device.counters.fusedPairs;
      const encoder = device.encoder({ optimize: { fuse: deltaFusions } });
      const { g, beta } = deltaGates(encoder, { a, b, aLog, dtBias });
      const { o } = gatedDeltaRule(encoder, { ...inputs, g, beta }, { scale: 1, gate });
      await encoder.commit({ keep: keepsGates ? [o, g] : [o] });
      expect(device.counters.fusedPairs).toBe(before);
    }
  });
});
