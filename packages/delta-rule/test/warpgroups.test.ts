// States that warpgroups pass over: the op's own choice needs more heads for them than a simulator has time for.
import { Device } from "@mlxts/core";
import { BARS, compare, Random, within } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { chunkStateKernel } from "../src/chunk_state.ts";
import { deltaRuleLibrary } from "../src/library.ts";
import { chunkSlots, chunkStateReference } from "../src/reference_chunk.ts";

const device = Device.open();
afterAll(() => device.dispose());
const variant = "bf16_warpgroups";
const has = device.library(deltaRuleLibrary).has(chunkStateKernel.name, variant);

interface Setting {
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
  BT: number;
  every: number;
  packed?: readonly number[];
  halves: boolean;
}

describe.skipIf(!has)(`states of warpgroups${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each<Setting>([
    // A last group of values, keys and a last chunk that are shorter; more chunks than slots.
    { T: 150, Hk: 1, H: 1, K: 104, V: 72, BT: 32, every: 64, halves: false },
    { T: 75, Hk: 1, H: 2, K: 128, V: 24, BT: 16, every: 16, packed: [0, 21, 21, 75], halves: false },
    { T: 150, Hk: 1, H: 1, K: 104, V: 72, BT: 32, every: 64, halves: true },
  ])(
    "T $T, H $H of $Hk, K $K, V $V, chunks of $BT, halves $halves",
    async ({ T, Hk, H, K, V, BT, every, packed, halves }) => {
      const random = new Random(1);
      const N = packed ? packed.length - 1 : 1;
      const shape = { B: 1, T, Hk, H, K, V, BT, cuSeqlens: packed && Float64Array.from(packed) };
      const slots = chunkSlots(shape);
      const rows = (packed ?? [0]).toReversed();
      const G = Float64Array.from({ length: T * H }, (_, i) => {
        const token = Math.floor(i / H);
        return -0.05 * (1 + ((token - (rows.find((begin) => begin <= token) ?? 0)) % BT));
      });
      const normals = (dims: readonly number[], spread: number) =>
        device.tensor(
          "bf16",
          dims,
          random.normals(
            dims.reduce((a, b) => a * b, 1),
            spread,
          ),
        );
      const states = [N, H, V, K];
      const given = {
        k: normals([1, T, Hk, K], K ** -0.5),
        w: normals([1, T, H, K], K ** -0.5),
        u: normals([1, T, H, V], 1),
        cumulativeGate: device.tensor("f32", [1, T, H], G),
        initialState: device.tensor("f32", states, random.normals(N * H * V * K)),
      };
      const count = packed
        ? packed.slice(1).reduce((sum, end, i) => sum + Math.floor((end - (packed[i] as number)) / every), 0)
        : Math.floor(T / every);
      const results = {
        h: device.tensor("bf16", [1, slots, H, V, K]),
        vNew: device.tensor("bf16", [1, T, H, V]),
        finalState: device.tensor("f32", states),
        snapshots: device.tensor("f32", [Math.floor(T / every), H, V, K]),
      };
      const encoder = device.encoder();
      encoder.dispatch(chunkStateKernel, {
        op: "chunkState",
        variant,
        buffers: {
          ...given,
          ...results,
          cumulativeGateLow: undefined,
          cuSeqlens: packed && device.tensor("i32", [N + 1], packed),
        },
        params: {
          sequences: N,
          tokens: T,
          keyHeads: Hk,
          headsPerKey: H / Hk,
          heads: H,
          keyDim: K,
          valueDim: V,
          chunkLength: BT,
          lastTokens: 0,
          rowStride: K,
          columnStride: 1,
          snapshotEvery: every,
        },
        sizes: { N, H, K, V, BT, channels: 1, bytes: 2, warpgroups: true, halves },
      });
      await encoder.commit();
      const [k, w, u, gates, initial] = (await Promise.all(
        [given.k, given.w, given.u, given.cumulativeGate, given.initialState].map((tensor) => tensor.readNumbers()),
      )) as Float64Array[] as [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
      const round = (x: number) => Math.fround(x);
      const expected = chunkStateReference(shape, k, w, u, gates, initial, round, every);
      const { R } = BARS;
      for (const name of ["h", "vNew", "finalState", "snapshots"] as const) {
        const found = (await results[name].readNumbers()) as Float64Array;
        const wanted = expected[name] as Float64Array;
        const real = wanted.map((_, i) => i).filter((i) => !Number.isNaN(wanted[i]));
        if (name === "snapshots") expect(real.length).toBe(count * H * V * K);
        const pick = (data: Float64Array) => real.map((i) => data[i] as number);
        expect(within(compare(pick(found), pick(wanted)), R.bf16, R.spread), name).toBe(true);
      }
    },
  );
});
