import { type Device, type RawArray, roundTo, type Tensor } from "@mlxts/core";
import { compare, type Reference64, roundedInputs, suiteCases } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { chunkCumsum, chunkInverse, chunkKkt, chunkOutput, chunkState, chunkWu, gatedDeltaRule } from "../src/index.ts";
import * as reference from "../src/reference_chunk.ts";
import { dataOf, F1, F2, type RuleOptions, type RuleSetting, ruleCase, shapeOf } from "./rule_cases.ts";
import { GATES, suites } from "./stages.suite.ts";

for (const [name, open] of DEVICES)
  describe(`G and GLow of chunkCumsum on ${name}`, () => {
    for (const { name: gates, inputs, options } of GATES)
      it(`add up to the exact sum: ${gates}`, async () => {
        using device = open();
        const rounded = roundedInputs({ name: gates, inputs }, "f32").g as { raw: RawArray; reference: Reference64 };
        const { shape, data } = rounded.reference;
        const [B, T, H] = shape as [number, number, number];
        const dims = { B, T, H, Hk: 1, K: 1, V: 1, BT: options.chunkLength };
        const exact = reference.chunkCumsumReference(dims, data);
        const encoder = device.encoder();
        const g = device.tensor("f32", shape, rounded.raw as Float32Array);
        const { G, GLow } = chunkCumsum(encoder, { g, GLow: true }, options);
        await encoder.commit();
        const [high, low] = [await G.readNumbers(), await (GLow as Tensor).readNumbers()];
        const worst = exact.map((sum, i) => Math.abs((high[i] as number) + (low[i] as number) - sum) / Math.abs(sum));
        expect(Math.max(...worst)).toBeLessThanOrEqual(2 ** -44);
      });
  });

/** Of a stage alone, against its reference with roundings: ties that flip. */
const ALONE = { bf16: { act: 4e-4, state: 2e-4 }, f16: { act: 1e-4, state: 5e-5 } } as const;

for (const [name, open] of DEVICES)
  describe(`each stage alone in 16 bits is its reference but for ties on ${name}`, () => {
    for (const suite of suites)
      for (const { op, dtype, name: setting, run } of suiteCases(suite))
        if (dtype !== "f32")
          it(`${op} ${dtype} ${setting}`, async () => {
            using device = open();
            for (const { output, compared } of (await run({ device, others: [] })).outputs) {
              if (!compared) continue;
              const bar = ALONE[dtype][compared.dtype === "f32" ? "state" : "act"];
              expect(compared.ratio, output).toBeLessThanOrEqual(bar);
            }
          });
  });

/** The stages one after the other, on the normalized and rounded q and k: every intermediate tensor. */
async function runStages(device: Device, setting: RuleSetting, chunkLength: 64) {
  const testCase = ruleCase(setting);
  const options = testCase.options as unknown as RuleOptions;
  const rounded = roundedInputs(testCase, "bf16");
  const numbers = Object.fromEntries(Object.entries(rounded).map(([name, r]) => [name, r.reference]));
  const expected = reference.chunkPipelineReference(
    { ...shapeOf(numbers), BT: chunkLength },
    dataOf(numbers),
    options,
    (x) => roundTo("bf16", x),
  );
  const given = Object.fromEntries(
    Object.entries(rounded).map(([name, { dtype, shape, raw }]) => [
      name,
      device.tensor(dtype, shape, raw as Uint16Array),
    ]),
  ) as Record<"q" | "k" | "v" | "g" | "beta" | "initialState", Tensor>;
  const encoder = device.encoder();
  const whole = gatedDeltaRule(encoder, { ...given, finalState: true }, { ...options, path: "chunk", chunkLength });
  const q = device.tensor("bf16", given.q.shape, expected.qUnit);
  const k = device.tensor("bf16", given.k.shape, expected.kUnit);
  const { v, g, beta, initialState } = given;
  const { G } = chunkCumsum(encoder, { g });
  const A = chunkKkt(encoder, { k, beta, G });
  const X = chunkInverse(encoder, { A });
  const { w, u } = chunkWu(encoder, { k, v, beta, G, X });
  const { h, vNew, finalState } = chunkState(encoder, { k, w, u, G, initialState, finalState: true });
  const o = chunkOutput(encoder, { q, k, vNew, h, G }, { scale: options.scale });
  await encoder.commit();
  return { tensors: { G, A, X, w, u, h, vNew, finalState: finalState as Tensor, o }, whole, expected };
}

/** Bars of the pipeline in bf16 against its reference with roundings; o and final state see the store of o. */
const BARS_Q = { A: 2e-6, X: 2e-6, w: 4e-4, u: 4e-4, h: 4e-4, vNew: 4e-4, finalState: 2e-4 } as const;

for (const [name, open] of DEVICES)
  describe(`the stages in bf16 against their reference with roundings on ${name}`, () => {
    for (const [fixture, setting] of [
      ["F1", F1],
      ["F2", F2],
    ] as const)
      it(fixture, async () => {
        using device = open();
        const { tensors, whole, expected } = await runStages(device, setting, 64);
        const roundedO = expected.o.map((x) => roundTo("bf16", x));
        const ratio = async (tensor: Tensor | undefined, ref: Float64Array) =>
          compare(await (tensor as Tensor).readNumbers(), ref).ratio;
        const G = await tensors.G.readNumbers();
        for (let i = 0; i < G.length; i++) {
          const exact = expected.G[i] as number;
          expect(Math.abs((G[i] as number) - exact)).toBeLessThanOrEqual(64 * 2 ** -24 * Math.abs(exact));
        }
        for (const [tensor, bar] of Object.entries(BARS_Q))
          expect(
            await ratio(tensors[tensor as keyof typeof BARS_Q], expected[tensor as keyof typeof BARS_Q]),
            tensor,
          ).toBeLessThanOrEqual(bar);
        expect(await ratio(tensors.o, roundedO), "o").toBeLessThanOrEqual(4e-4);
        expect(await ratio(whole.o, roundedO), "o of gatedDeltaRule").toBeLessThanOrEqual(4e-4);
        expect(await ratio(whole.finalState, expected.finalState), "final").toBeLessThanOrEqual(2e-4);
      });
  });
