// What holds beyond the numbers of one call: cuts of T, spread of NaN, replay, the path that `auto` takes.
import {
  type CommandEncoder,
  Device,
  decodeNumbers,
  encodeNumbers,
  FLOATS,
  type FloatDtype,
  type Tensor,
} from "@mlxts/core";
import { BARS, type Case, compare, sameBytes, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { gatedDeltaRule } from "../src/index.ts";
import { type RuleSetting, ruleCase, sequentialReference } from "./rule_cases.ts";

const T = 150;
const H = 4;
const V = 24;
const K = 64;
const SETTING: RuleSetting = { B: 1, T, Hk: 2, H, K, V, state: true };
const CASE = ruleCase(SETTING);
/** Where a number that is none may spread: over whole vectors of keys, and where vectors have a rest. */
const SPREADS = [K, 24].flatMap((keys) =>
  [false, true].map((channels) => ({ keys, channels, testCase: ruleCase({ ...SETTING, K: keys, channels }) })),
);
type Given = Record<"q" | "k" | "v" | "g" | "beta", Tensor>;

/** Tokens begin … end − 1 of a case. */
function tokens(device: Device, act: FloatDtype, begin = 0, end = T, { inputs } = CASE): Given {
  return Object.fromEntries(
    ["q", "k", "v", "g", "beta"].map((name) => {
      const { dtype, shape, data } = inputs[name] as Case["inputs"][string];
      const row = shape.slice(2).reduce((x, y) => x * y, 1);
      const concrete = dtype === "act" ? act : "f32";
      const raw = encodeNumbers(concrete, data).slice(begin * row, end * row);
      return [name, device.tensor(concrete, [1, end - begin, ...shape.slice(2)], raw as Float32Array)];
    }),
  ) as Given;
}
const newState = (device: Device, { inputs } = CASE) => {
  const { shape, data } = inputs.initialState as Case["inputs"][string];
  return device.tensor("f32", shape, data);
};

type Options = Parameters<typeof gatedDeltaRule>[2];
const OPTIONS: Options = { scale: 0.125, qkNorm: "sum-eps", path: "chunk", chunkLength: 32 };

async function call(device: Device, given: Given, state: Tensor, options: Options): Promise<Tensor> {
  const encoder = device.encoder();
  const { o } = gatedDeltaRule(encoder, { ...given, initialState: state, finalState: state }, options);
  await encoder.commit();
  return o;
}

for (const [name, open] of DEVICES)
  describe(`gatedDeltaRule on ${name}`, () => {
    for (const act of FLOATS) {
      it(`${act}: cuts at multiples of the chunk length change no bit`, async () => {
        using device = open();
        const state = newState(device);
        const o = await (await call(device, tokens(device, act), state, OPTIONS)).read();
        for (const cuts of [
          [32, T],
          [64, 96, T],
          [128, T],
        ]) {
          const carried = newState(device);
          let begin = 0;
          for (const end of cuts) {
            const part = await (await call(device, tokens(device, act, begin, end), carried, OPTIONS)).read();
            expect(sameBytes(part, o.slice(begin * H * V, end * H * V))).toBe(true);
            begin = end;
          }
          expect(sameBytes(await carried.read(), await state.read())).toBe(true);
        }
      });

      it(`${act}: other cuts, and changes of path, stay within class P of the whole`, async () => {
        using device = open();
        const rounded = Object.fromEntries(
          Object.entries(CASE.inputs).map(([name, { dtype, shape, data }]) => {
            const concrete = dtype === "act" ? act : "f32";
            return [name, { shape, data: decodeNumbers(concrete, encodeNumbers(concrete, data)) }];
          }),
        );
        const expected = sequentialReference(rounded, { scale: 0.125, qkNorm: "sum-eps" } as never, act);
        const carried = newState(device);
        const out: number[] = [];
        let begin = 0;
        for (const [i, end] of [1, 40, 41, 109, T].entries()) {
          const options = { ...OPTIONS, path: i % 2 === 0 ? "chunk" : "recurrent" } as const;
          out.push(...(await (await call(device, tokens(device, act, begin, end), carried, options)).readNumbers()));
          begin = end;
        }
        const pass = (x: ArrayLike<number>, ref: { data: Float64Array } | undefined) =>
          within(compare(x, (ref as { data: Float64Array }).data), BARS.P[act], BARS.P.spread);
        expect(pass(out, expected.o)).toBe(true);
        expect(pass(await carried.readNumbers(), expected.finalState)).toBe(true);
      });
    }

    for (const path of ["recurrent", "chunk"] as const)
      for (const { keys, channels, testCase } of SPREADS)
        for (const poison of [Number.NaN, Number.POSITIVE_INFINITY])
          for (const poisoned of ["q", "k", "v", "g", "beta"] as const) {
            const gates = channels ? "a gate for each of" : "one gate for";
            it(`${path}: ${poison} in ${poisoned} stays in its heads and its own and later chunks, ${gates} ${keys}`, async () => {
              using device = open();
              const options = { ...OPTIONS, path } as const;
              const fresh = () => tokens(device, "f32", 0, T, testCase);
              const clean = await (await call(device, fresh(), newState(device, testCase), options)).read();
              const given = fresh();
              const target = given[poisoned];
              const at = 70;
              const numbers = await target.readNumbers();
              // Token 70, first head: for q and k a key head, that of value heads 0 and 1.
              numbers[(at * target.size) / T] = poison;
              target.write(numbers);
              const state = newState(device, testCase);
              const o = (await (await call(device, given, state, options)).read()) as Float32Array;
              const final = await state.readNumbers();
              const heads = poisoned === "q" || poisoned === "k" ? 2 : 1;
              const columns = poisoned === "v" ? 1 : V;
              const firstTouched = path === "chunk" ? 64 : at;
              const lost = (x: number) => !Number.isFinite(x);
              for (let t = 0; t < T; t++)
                for (let h = 0; h < H; h++) {
                  const row = o.slice((t * H + h) * V, (t * H + h + 1) * V);
                  if (h >= heads || t < firstTouched)
                    expect(sameBytes(row, clean.slice((t * H + h) * V, (t * H + h + 1) * V))).toBe(true);
                  else if (t === at || (t > at && poisoned !== "q"))
                    expect(row.slice(0, columns).every(lost)).toBe(true);
                }
              if (poisoned !== "q") expect(final.slice(0, keys).every(lost)).toBe(true);
              expect(final.slice(heads * V * keys).every(Number.isFinite)).toBe(true);
            });
          }

    it("a recording with an arena can be replayed, in place, and gives scratch back", async () => {
      using device = open();
      const given = tokens(device, "bf16");
      const state = newState(device);
      const arena = device.arena(1 << 22);
      const encoder = device.encoder({ arena });
      const before = arena.used;
      const { o } = gatedDeltaRule(encoder, { ...given, initialState: state, finalState: state }, OPTIONS);
      expect(arena.used - before).toBe(Math.ceil(o.byteLength / 256) * 256);
      const recording = encoder.finish();
      await recording.replay();
      const first = [await o.read(), await state.read()];
      const again = newState(device);
      const o2 = await call(device, given, again, OPTIONS);
      expect(sameBytes(await o2.read(), first[0] as Uint16Array)).toBe(true);
      state.write(await newState(device).read());
      await recording.replay();
      expect(sameBytes(await o.read(), first[0] as Uint16Array)).toBe(true);
      expect(sameBytes(await state.read(), await again.read())).toBe(true);
    });
  });

/** Labels of the dispatches that an encoder has recorded; runs them. */
async function labelsOf(encoder: CommandEncoder): Promise<string[]> {
  const { dispatches = [] } = await encoder.commit({ profile: true });
  return dispatches.map(({ label }) => label);
}

/** Where a CPU multiplies tiles, chunks pay later than `vectors` says. */
const crossoverOnCpu = (device: Device, vectors: number) => (device.level === "amx" ? 16 : vectors);

it("auto takes the recurrent path for few tokens and the chunk path for many", async () => {
  using device = Device.open();
  const labels = (count: number) => {
    const encoder = device.encoder();
    gatedDeltaRule(encoder, tokens(device, "f32", 0, count), { scale: 1 });
    return labelsOf(encoder);
  };
  const crossover = device.gpu ? 64 : crossoverOnCpu(device, 4);
  const stages = ["cumsum_f32", "kkt_f32", "inverse_f32", "wu_f32", "state_f32_k64", "output_f32"];
  const chunked = device.gpu ? stages.map((stage) => `chunk_${stage}`) : ["gated_delta_rule_chunk_f32"];
  for (const count of [1, crossover - 1])
    expect(await labels(count)).toEqual(["gatedDeltaRule/gated_delta_rule_recurrent_f32"]);
  for (const count of [crossover, T])
    expect(await labels(count)).toEqual(chunked.map((kernel) => `gatedDeltaRule/${kernel}`));
});

it.each([
  ["one gate a head", 64, 128, 1, 4],
  ["a large state", 128, 136, 1, 8],
  ["a gate for each channel", 64, 32, 64, 16],
])("auto's crossover on CPUs: %s", async (_, K, V, channels, ofVectors) => {
  using device = Device.open("cpu");
  const crossover = crossoverOnCpu(device, ofVectors);
  const goesByTokens = async (count: number) => {
    const f32 = (...shape: number[]) => device.tensor("f32", [1, count, 1, ...shape]);
    const encoder = device.encoder();
    const g = channels > 1 ? f32(K) : f32();
    gatedDeltaRule(encoder, { q: f32(K), k: f32(K), v: f32(V), g, beta: f32() }, { scale: 1 });
    const labels = await labelsOf(encoder);
    return labels.join() === "gatedDeltaRule/gated_delta_rule_recurrent_f32".concat(channels > 1 ? "_channels" : "");
  };
  expect(await goesByTokens(crossover - 1)).toBe(true);
  expect(await goesByTokens(crossover)).toBe(false);
});
