import { arenaBytes, type CommandEncoder, Device, type Tensor } from "@mlxts/core";
import { changeLimits } from "@mlxts/core/testing";
import { expectRefusal, type RefusalKind } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { gatedDeltaRule, gatedDeltaRuleRecurrent, scratchBytes } from "../src/index.ts";
import type { GatedDeltaRuleInputs } from "../src/signatures.ts";

const device = Device.open();
const other = Device.open();
afterAll(() => {
  device.dispose();
  other.dispose();
});

const refuses = (call: () => unknown, message: string, kind?: RefusalKind) =>
  expectRefusal(call, message, kind, device);

const f32 = (...shape: number[]) => device.tensor("f32", shape);
const bf16 = (...shape: number[]) => device.tensor("bf16", shape);

const good = {
  q: f32(2, 5, 2, 16),
  k: f32(2, 5, 2, 16),
  v: f32(2, 5, 4, 8),
  g: f32(2, 5, 4),
  beta: f32(2, 5, 4),
  initialState: f32(2, 4, 8, 16),
};
const unknown = <T>(value: unknown) => value as T;

describe.each([
  ["gatedDeltaRule", gatedDeltaRule],
  ["gatedDeltaRuleRecurrent", gatedDeltaRuleRecurrent],
] as const)("%s refuses", (name, op) => {
  const call =
    (changed: Record<string, unknown>, options: Record<string, unknown> = { scale: 1 }) =>
    () =>
      (op as typeof gatedDeltaRule)(
        device.encoder(),
        unknown<GatedDeltaRuleInputs>({ ...good, ...changed }),
        unknown(options),
      );
  const cases: [string, Record<string, unknown>, string, Record<string, unknown>?][] = [
    ["heads that do not share evenly", { v: f32(2, 5, 3, 8) }, "`H` must be a multiple of Hk (2), got 3"],
    [
      "a K that no row can hold",
      { q: f32(2, 5, 2, 264), k: f32(2, 5, 2, 264) },
      "`k` must have at most 256 elements per head (K), got 264",
    ],
    ["an infinite scale", {}, "`scale` must be a finite number, got Infinity", { scale: Number.POSITIVE_INFINITY }],
    ["an eps of 0", {}, "`qkNormEps` must be a finite number > 0, got 0", { scale: 1, qkNormEps: 0 }],
    [
      "another norm",
      {},
      "`qkNorm` must be one of none, sum-eps, mean-eps, max-eps, got rms",
      { scale: 1, qkNorm: "rms" },
    ],
    ["q of integers", { q: device.tensor("i32", [2, 5, 2, 16]) }, "`q` must have dtype f32 or f16 or bf16, got i32"],
    ["k of another dtype", { k: bf16(2, 5, 2, 16) }, "`k` must have dtype f32, got bf16"],
    ["k of another shape", { k: f32(2, 4, 2, 16) }, "`k` must have shape [2, 5, 2, 16], got [2, 4, 2, 16]"],
    ["v of another length", { v: f32(2, 6, 4, 8) }, "`v` must have shape [2, 5, 4, 8], got [2, 6, 4, 8]"],
    ["g per key head", { g: f32(2, 5, 2) }, "`g` must have shape [2, 5, 4], got [2, 5, 2]"],
    ["g in bf16", { g: bf16(2, 5, 4) }, "`g` must have dtype f32, got bf16"],
    ["beta per key head", { beta: f32(2, 5, 2) }, "`beta` must have shape [2, 5, 4], got [2, 5, 2]"],
    ["beta in bf16", { beta: bf16(2, 5, 4) }, "`beta` must have dtype f32, got bf16"],
    [
      "a state of [K, V]",
      { initialState: f32(2, 4, 16, 8) },
      "`initialState` must have shape [2, 4, 8, 16], got [2, 4, 16, 8]",
    ],
    ["a state in bf16", { initialState: bf16(2, 4, 8, 16) }, "`initialState` must have dtype f32, got bf16"],
    ["o of another dtype", { o: bf16(2, 5, 4, 8) }, "`o` must have dtype f32, got bf16"],
    [
      "a final state of another shape",
      { finalState: f32(1, 4, 8, 16) },
      "`finalState` must have shape [2, 4, 8, 16], got [1, 4, 8, 16]",
    ],
    ["o over v", { o: good.v }, "`o` must not overlap `v`, got overlapping views"],
    [
      "a tensor of another device",
      { beta: other.tensor("f32", [2, 5, 4]) },
      "`beta` must belong to the encoder's device, got a tensor of another device",
    ],
  ];
  it.each(cases)("%s", (_, changed, message, options) => refuses(call(changed, options), `${name}: ${message}`));

  it("what is not a tensor", () =>
    refuses(call({ q: [1, 2] }), `${name}: \`q\` must be a Tensor, got [1, 2]`, "TypeError"));
  it("a missing scale", () => refuses(call({}, {}), `${name}: \`scale\` must be a number, got undefined`, "TypeError"));
  it("a final state that overlaps the initial one in part", () => {
    const memory = f32(3, 4, 8, 16);
    const changed = { initialState: memory.slice(0, 2), finalState: memory.slice(1, 3) };
    refuses(
      call(changed),
      `${name}: \`finalState\` must be exactly \`initialState\` or not overlap it, got overlapping views`,
    );
  });
  it("outputs that overlap", () => {
    const memory = f32(1024);
    refuses(
      call({ o: memory.view(0, [2, 5, 4, 8]), finalState: memory.view(0, [2, 4, 8, 16]) }),
      `${name}: \`finalState\` must not overlap \`o\`, got overlapping views`,
    );
  });
});

describe("gatedDeltaRule refuses", () => {
  const call = (changed: Record<string, unknown>, options: Record<string, unknown>) => () =>
    gatedDeltaRule(
      device.encoder(),
      unknown<GatedDeltaRuleInputs>({ ...good, ...changed }),
      unknown({ scale: 1, ...options }),
    );
  it("a K that the chunk path does not do", () =>
    refuses(
      call({ q: f32(2, 5, 2, 20), k: f32(2, 5, 2, 20) }, { path: "chunk" }),
      'gatedDeltaRule: `k` must have a multiple of 8 elements per head (K) on the chunk path, got 20 — use path "recurrent"',
    ));
  it("another chunk length", () =>
    refuses(call({}, { chunkLength: 48 }), "gatedDeltaRule: `chunkLength` must be one of 16, 32, 64, got 48"));
  it("another path", () =>
    refuses(
      call({}, { path: "parallel" }),
      "gatedDeltaRule: `path` must be one of auto, recurrent, chunk, got parallel",
    ));
  it("another precision", () =>
    refuses(call({}, { precision: "f64" }), "gatedDeltaRule: `precision` must be one of activation, f32, got f64"));
  it("an arena that is too small, before the first dispatch", () => {
    // More state than the fused kernel takes: the stages run, and need their scratch.
    const shape = { B: 1, T: 5, Hk: 1, H: 1, K: 128, V: 1025, dtype: "f32" } as const;
    const wide = { q: f32(1, 5, 1, 128), k: f32(1, 5, 1, 128), v: f32(1, 5, 1, 1025), g: f32(1, 5, 1) };
    const good = { ...wide, beta: f32(1, 5, 1) };
    const scratch = scratchBytes(shape);
    const o = arenaBytes("f32", [1, 5, 1, 1025]);
    const options = { scale: 1, path: "chunk" } as const;
    const enough = device.arena(scratch + o);
    gatedDeltaRule(device.encoder({ arena: enough }), good, options);
    expect([enough.used, enough.peakBytes]).toEqual([o, scratch + o]);
    const small = device.arena(scratch + o - 1);
    refuses(
      () => gatedDeltaRule(device.encoder({ arena: small }), good, options),
      `gatedDeltaRule: \`arena\` must have ${scratch + o} free bytes, got ${scratch + o - 1} — make it at least ${scratch + o} bytes`,
    );
    expect(small.used).toBe(0);
    const state = arenaBytes("f32", [1, 1, 1025, 128]);
    enough.alloc("u8", [1]);
    refuses(
      () => gatedDeltaRule(device.encoder({ arena: enough }), { ...good, finalState: true }, options),
      `gatedDeltaRule: \`arena\` must have ${scratch + o + state} free bytes, got ${scratch - 256} — make it at least ${scratch + 2 * o + 256 + state} bytes`,
    );
    // Outputs that are passed take nothing; an arena that grows has room.
    const given = { ...good, o: f32(1, 5, 1, 1025), finalState: f32(1, 1, 1025, 128) };
    gatedDeltaRule(device.encoder({ arena: device.arena(scratch) }), given, options);
    gatedDeltaRule(device.encoder({ arena: device.arena(256, { grow: true }) }), good, options);
  });
});

describe("on a CPU with lower limits", () => {
  // What a CPU allows, 2^31 - 1 threadgroups an axis and 16 MiB, no tensors that fit in memory reach.
  const lower = Device.open("cpu");
  const actual = lower.limits;
  afterAll(() => lower.dispose());
  const limits = (changed: Partial<Device["limits"]>) => changeLimits(lower, { ...actual, ...changed });
  const on = Object.fromEntries(
    Object.entries({ ...good, o: good.v }).map(([name, { shape }]) => [name, lower.tensor("f32", shape)]),
  ) as typeof good & { o: Tensor };
  const refusesThere = (call: (encoder: CommandEncoder) => unknown, message: string) => {
    const encoder = lower.encoder();
    expect(() => call(encoder)).toThrow(
      expect.objectContaining({ name: "RangeError", code: "InvalidArgument", message }),
    );
    expect(encoder.finish().dispatches).toBe(0);
  };
  it("gatedDeltaRule refuses too many threadgroups on an axis", () => {
    limits({ maxThreadgroupsPerAxis: [3, 3, 3] });
    for (const [path, threadgroups] of [
      ["recurrent", "axis y, got [1, 4, 2]"],
      ["chunk", "axis x, got [4, 2, 1]"],
    ] as const)
      refusesThere(
        (encoder) => gatedDeltaRule(encoder, on, { scale: 1, path }),
        `gatedDeltaRule: \`threadgroups\` must be from 1 to 3 on ${threadgroups}`,
      );
    refusesThere(
      (encoder) => gatedDeltaRuleRecurrent(encoder, on, { scale: 1 }),
      "gatedDeltaRuleRecurrent: `threadgroups` must be from 1 to 3 on axis y, got [1, 4, 2]",
    );
  });
  it("gatedDeltaRule refuses too much threadgroup memory", () => {
    limits({ maxThreadgroupBytes: 1024 });
    for (const [path, bytes] of [
      ["recurrent", 4 * (2 * 16 + 3 * 32 + 32 * 16)],
      // The state, rows of keys and k transposed, [BT, BT], panels of values, and numbers of tokens and of channels; BT is
      // 16 by default.
      ["chunk", 4 * (16 * 64 + 5 * (16 * 16) + 3 * 16 ** 2 + 3 * (16 * 64) + 6 * 16 + 16)],
    ] as const)
      refusesThere(
        (encoder) => gatedDeltaRule(encoder, on, { scale: 1, path }),
        `gatedDeltaRule: \`scratch\` must take at most 1024 bytes, got ${bytes}`,
      );
  });
});

it("scratchBytes is what the contract's example says", () => {
  const shape = { B: 1, T: 128, Hk: 2, H: 4, K: 128, V: 128, dtype: "bf16" } as const;
  expect(scratchBytes(shape, { qkNorm: "sum-eps" })).toBe(1_050_624);
  expect(scratchBytes(shape)).toBe(1_050_624 - 2 * 65_536);
  expect(scratchBytes(shape, { precision: "f32" })).toBe(1_050_624 - 2 * 65_536 + 2048);
  expect(scratchBytes(shape, { chunkLength: 16 })).toBe(1_050_624 - 2 * 65_536 - 2 * 98_304 + 3 * 262_144);
});

it("records many sequences, whose scratch has more bytes than a dimension counts", () => {
  // A CPU needs scratch for a state that is this large.
  using cpu = Device.open("cpu");
  using encoder = cpu.encoder({ optimize: true });
  const [B, T, H, K, V] = [64, 512, 6, 256, 1024];
  expect(scratchBytes({ B, T, H, Hk: H, K, V, dtype: "bf16" })).toBeGreaterThan(2 ** 31);
  const given = (columns: number) => encoder.empty("bf16", [B, T, H, columns]);
  const gates = () => encoder.empty("f32", [B, T, H]);
  const inputs = { q: given(K), k: given(K), v: given(V), g: gates(), beta: gates() };
  const { o } = gatedDeltaRule(encoder, inputs, { scale: 1, path: "chunk" });
  expect(o.shape).toEqual([B, T, H, V]);
});
