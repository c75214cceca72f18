// Prefill beside rows that are there already: by chunks, in both forms, and beside other sequences.
import type { FloatDtype, Tensor } from "@mlxts/core";
import { BARS, compare, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { mlaAttention, mlaOut, mlaPrefill, mlaQPrime } from "../src/index.ts";
import { decompressedReference } from "../src/reference_attention.ts";
import { layerMaker, type Sizes } from "./layers.ts";

const makeLayer = layerMaker();

const SMALL: Sizes = { H: 2, nope: 16, rope: 8, v: 12, R: 32 };

const made = new Map<string, ReturnType<typeof makeLayer> & { expected: Float64Array }>();
/** A layer and what it gives in f64, made once for all devices: that takes longer than the rest of a test. */
function expectedLayer(causal: boolean, ...given: Parameters<typeof makeLayer>) {
  const key = JSON.stringify([causal, given]);
  let layer = made.get(key);
  if (!layer) {
    const { problem, ...rest } = makeLayer(...given);
    layer = { problem, ...rest, expected: decompressedReference({ ...problem, causal }) };
    made.set(key, layer);
  }
  return layer;
}

describe.each(DEVICES)("prefill on %s", (name, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const simulated = name === "metal";
  const near = (dtype: FloatDtype, got: Float64Array, expected: ArrayLike<number>) => {
    const compared = compare(got, expected);
    expect(within(compared, BARS.A[dtype], BARS.A.spread), JSON.stringify(compared)).toBe(true);
  };
  const run = async (inputs: Parameters<typeof mlaPrefill>[1], options: Parameters<typeof mlaPrefill>[2]) => {
    const encoder = device.encoder();
    const { out } = mlaPrefill(encoder, inputs, options);
    await encoder.commit();
    return out.readNumbers();
  };
  const FORMS = ["folded", "materialized"] as const;
  const DTYPES = ["f32", "f16", "bf16"] as const;

  it.each(DTYPES.flatMap((dtype) => FORMS.map((form) => [dtype, form] as const)))(
    "%s %s: lengths beside each other",
    async (dtype, form) => {
      for (const [lengths, L, causal] of [
        [[3, 130, 70], 3, true],
        [[0, 1, 66], 3, false],
        [[0], 2, false],
        [[200, 64, 65], 64, true],
        [[63, 128, 0], 9, false],
      ] as const) {
        const { expected, tensors, options } = expectedLayer(causal, dtype, lengths, L, SMALL);
        for (const scratchBytes of [1 << 26, 1])
          near(dtype, await run(tensors(device), { ...options, causal, form, scratchBytes }), expected);
      }
    },
  );

  it.each(DTYPES)("%s: a sequence's result does not depend on its neighbors or on the blocks", async (dtype) => {
    const [lengths, L] = [[130, 70, 200], 70];
    const { tensors, options } = makeLayer(dtype, lengths, L, SMALL);
    const { kvB, ...all } = tensors(device);
    const together = await run({ ...all, kvB }, { ...options, form: "materialized" });
    const size = together.length / 3;
    for (const n of [0, 1, 2]) {
      const one = (tensor: Tensor) => tensor.view((n * tensor.size) / 3, [1, ...tensor.shape.slice(1)]);
      const alone = {
        q: one(all.q),
        qPe: one(all.qPe),
        latentCache: one(all.latentCache),
        kPeCache: one(all.kPeCache),
        lengths: one(all.lengths),
        kvB,
      };
      for (const scratchBytes of [1 << 26, 1 << 14, 1])
        expect(await run(alone, { ...options, form: "materialized", scratchBytes })).toEqual(
          together.slice(n * size, (n + 1) * size),
        );
    }
  });

  it.each(DTYPES)("%s: chunks of a prompt give what one call gives", async (dtype) => {
    const L = 100;
    const { expected, tensors, options } = expectedLayer(true, dtype, [L], L, SMALL);
    const { q, qPe, latentCache, kPeCache, kvB } = tensors(device);
    for (const chunks of [[100], [1, 99], [64, 36], [30, 30, 30, 10]]) {
      const empty = (cache: Tensor) => device.tensor(dtype, cache.shape, new Float64Array(cache.size).fill(Number.NaN));
      const own = { latentCache: empty(latentCache), kPeCache: empty(kPeCache) };
      const outs: Float64Array[] = [];
      let begin = 0;
      for (const count of chunks) {
        const first = begin;
        begin += count;
        const tokens = (tensor: Tensor) => {
          const rest = tensor.shape.slice(2);
          const size = rest.reduce((a, b) => a * b, 1);
          return tensor.view(first * size, [1, count, ...rest]);
        };
        outs.push(
          await run(
            {
              q: tokens(q),
              qPe: tokens(qPe),
              latent: tokens(latentCache),
              kPe: tokens(kPeCache),
              kvB,
              lengths: device.tensor("i32", [1], [begin]),
              ...own,
            },
            options,
          ),
        );
      }
      near(dtype, Float64Array.from(outs.flatMap((out) => [...out])), expected);
    }
  });

  it("values that earlier tokens do not see may be anything", async () => {
    for (const dtype of DTYPES)
      for (const [length, L] of [
        [70, 70],
        [131, 3],
        [66, 65],
      ] as const) {
        const { problem, tensors, options } = makeLayer(dtype, [length], L, SMALL);
        const { R, rope, H, v } = problem.sizes;
        problem.latents.fill(Number.NaN, (length - 1) * R, length * R);
        problem.keys.fill(Number.NaN, (length - 1) * rope, length * rope);
        const out = await run(tensors(device), { ...options, form: "materialized" });
        const before = (L - 1) * H * v;
        near(dtype, out.slice(0, before), decompressedReference(problem).slice(0, before));
        expect(out.slice(before).every((x) => Number.isNaN(x))).toBe(true);
      }
  });

  // The naive form in f64 takes all rows for each token: few tokens, few heads.
  const long = simulated ? [257, 4097, 33000] : [255, 257, 1000, 4095, 4096, 4097, 8193, 33000];
  it.each(long)("folded, in pieces and materialized agree over %d rows", async (length) => {
    const dtypes = simulated && length > 10000 ? (["f32", "bf16"] as const) : DTYPES;
    for (const dtype of dtypes)
      for (const L of [1, 9]) {
        const sizes = { H: 2, nope: 8, rope: 4, v: 8, R: 16 };
        const { expected, tensors, options } = expectedLayer(true, dtype, [length], L, sizes);
        const given = tensors(device);
        for (const scratchBytes of [1 << 26, 1 << 17])
          near(dtype, await run(given, { ...options, form: "materialized", scratchBytes }), expected);
        near(dtype, await run(given, { ...options, form: "folded" }), expected);
        const { q, kvB, ...rest } = given;
        const encoder = device.encoder();
        const queries = mlaQPrime(encoder, { q, kvB }, { nope: options.nope });
        const { vc } = mlaAttention(encoder, { queries, ...rest }, { softmaxScale: options.softmaxScale });
        const out = mlaOut(encoder, { vc, kvB }, { v: 8, outDtype: dtype });
        await encoder.commit();
        near(dtype, await out.readNumbers(), expected);
      }
  });
});
