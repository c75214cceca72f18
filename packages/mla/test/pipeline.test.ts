// Attention from its ops: against decompressed keys and values, in parts, and beside other sequences.
import type { Tensor } from "@mlxts/core";
import { BARS, compare, Random, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { mlaAttention, mlaCacheAppend, mlaDecode, mlaOut, mlaQPrime } from "../src/index.ts";
import { decompressedReference } from "../src/reference_attention.ts";
import { layerMaker, type Sizes } from "./layers.ts";

const makeLayer = layerMaker();

const random = new Random(28);

const WIDTHS: Sizes[] = [
  { H: 2, nope: 128, rope: 64, v: 128, R: 512 },
  { H: 3, nope: 64, rope: 32, v: 64, R: 128 },
  { H: 4, nope: 16, rope: 16, v: 16, R: 64 },
  { H: 1, nope: 192, rope: 64, v: 256, R: 512 },
];

describe.each(DEVICES)("attention from its ops on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  it.each((["f32", "f16", "bf16"] as const).flatMap((dtype) => WIDTHS.map((sizes) => [dtype, sizes] as const)))(
    "%s %j equals attention with decompressed keys and values",
    async (dtype, sizes) => {
      for (const [lengths, L] of [
        [[70], 1],
        [[20, 33], 9],
      ] as const) {
        const { problem, tensors } = makeLayer(dtype, [...lengths], L, sizes);
        const { q, kvB, ...rest } = tensors(device);
        const encoder = device.encoder();
        const queries = mlaQPrime(encoder, { q, kvB }, { nope: sizes.nope });
        const { vc } = mlaAttention(encoder, { queries, ...rest }, { softmaxScale: problem.scale });
        const out = mlaOut(encoder, { vc, kvB }, { v: sizes.v, outDtype: dtype });
        await encoder.commit();
        const { [dtype]: bar, spread } = BARS.A;
        const compared = compare(await out.readNumbers(), decompressedReference(problem));
        expect(within(compared, bar, spread), JSON.stringify(compared)).toBe(true);
      }
    },
  );

  const attend = async (tensors: Parameters<typeof mlaAttention>[1], causal = true) => {
    const encoder = device.encoder();
    const { vc, lse } = mlaAttention(encoder, { ...tensors, lse: true }, { softmaxScale: 0.1, causal });
    await encoder.commit();
    return { vc: await vc.readNumbers(), lse: await (lse as Tensor).readNumbers() };
  };
  const parts = ({ q: _, kvB: __, ...rest }: ReturnType<ReturnType<typeof makeLayer>["tensors"]>, queries: Tensor) => ({
    ...rest,
    queries,
  });

  it.each(["f32", "bf16"] as const)("%s: a sequence's result does not depend on its neighbors", async (dtype) => {
    const sizes = { H: 4, nope: 8, rope: 16, v: 8, R: 64 };
    const lengths = [3, 700, 130];
    const all = makeLayer(dtype, lengths, 3, sizes).tensors(device);
    const queries = device.tensor("f32", [3, 3, 4, 64], random.normals(3 * 3 * 4 * 64));
    const together = await attend(parts(all, queries));
    for (const n of [0, 1, 2]) {
      const one = (tensor: Tensor) => {
        const shape = [1, ...tensor.shape.slice(1)];
        return tensor.view((n * tensor.size) / 3, shape);
      };
      const { qPe, latentCache, kPeCache } = all;
      const alone = await attend({
        queries: one(queries),
        qPe: one(qPe),
        latentCache: one(latentCache),
        kPeCache: one(kPeCache),
        lengths: device.tensor("i32", [1], [lengths[n] as number]),
      });
      expect(alone.vc).toEqual(together.vc.slice(n * 3 * 4 * 64, (n + 1) * 3 * 4 * 64));
      expect(alone.lse).toEqual(together.lse.slice(n * 12, (n + 1) * 12));
    }
  });

  it("parts of a cache are merged by their lse", async () => {
    const { qPe, latentCache, kPeCache } = makeLayer("f32", [300], 2, {
      H: 3,
      nope: 8,
      rope: 16,
      v: 8,
      R: 32,
    }).tensors(device);
    const queries = device.tensor("f32", [1, 2, 3, 32], random.normals(2 * 3 * 32));
    const rows = (begin: number, end: number) =>
      attend(
        {
          queries,
          qPe,
          latentCache: latentCache.view(begin * 32, [1, end - begin, 32]),
          kPeCache: kPeCache.view(begin * 16, [1, end - begin, 16]),
          lengths: device.tensor("i32", [1], [end - begin]),
        },
        false,
      );
    const [whole, first, second] = [await rows(0, 300), await rows(0, 111), await rows(111, 300)];
    const lse = first.lse.map((a, i) => Math.log(Math.exp(a) + Math.exp(second.lse[i] as number)));
    const vc = first.vc.map((a, i) => {
      const row = Math.floor(i / 32);
      const share = (part: typeof first) => Math.exp((part.lse[row] as number) - (lse[row] as number));
      return a * share(first) + (second.vc[i] as number) * share(second);
    });
    expect(compare(lse, whole.lse).ratio).toBeLessThan(5e-7);
    expect(compare(vc, whole.vc).ratio).toBeLessThan(2e-6);
  });

  it.each(["f32", "f16", "bf16"] as const)(
    "%s: mlaDecode token by token equals one call and its parts",
    async (dtype) => {
      const sizes = { H: 3, nope: 16, rope: 8, v: 12, R: 64 };
      const [lengths, L] = [[20, 9], 9];
      const { problem, tensors } = makeLayer(dtype, lengths, L, sizes);
      const { q, qPe, latentCache, kPeCache, kvB } = tensors(device);
      const options = { nope: 16, softmaxScale: problem.scale };
      const whole = problem.latents.length;
      /** Tokens `begin` … `begin + count − 1` of each sequence, of a tensor [N, tokens, …]. */
      const tokens = async (tensor: Tensor, begin: (n: number) => number, count: number) => {
        const [N = 0, all = 0, ...rest] = tensor.shape;
        const size = rest.reduce((a, b) => a * b, 1);
        const data = await tensor.readNumbers();
        const parts = Array.from({ length: N }, (_, n) =>
          data.slice((n * all + begin(n)) * size, (n * all + begin(n) + count) * size),
        );
        return device.tensor(
          dtype,
          [N, count, ...rest],
          parts.flatMap((part) => [...part]),
        );
      };
      const empty = (cache: Tensor) => device.tensor(dtype, cache.shape, new Float64Array(cache.size).fill(Number.NaN));
      const own = { latentCache: empty(latentCache), kPeCache: empty(kPeCache) };
      // Rows before the tokens, longest first, then one token after the other.
      const old = device.encoder();
      const before = 11;
      const rowsBefore = async (tensor: Tensor) =>
        (await tokens(tensor, () => 0, before)).view(0, [1, before, tensor.lastDim]);
      const first = (cache: Tensor) => cache.view(0, [1, ...cache.shape.slice(1)]);
      mlaCacheAppend(old, {
        latent: await rowsBefore(latentCache),
        kPe: await rowsBefore(kPeCache),
        start: device.tensor("i32", [1], [0]),
        latentCache: first(own.latentCache),
        kPeCache: first(own.kPeCache),
      });
      await old.commit();
      const steps: Float64Array[] = [];
      for (let i = 0; i < L; i++) {
        const at = (n: number) => (lengths[n] as number) - L + i;
        const encoder = device.encoder();
        const { out } = mlaDecode(
          encoder,
          {
            q: await tokens(q, () => i, 1),
            qPe: await tokens(qPe, () => i, 1),
            latent: await tokens(latentCache, at, 1),
            kPe: await tokens(kPeCache, at, 1),
            kvB,
            lengths: device.tensor("i32", [2], [at(0) + 1, at(1) + 1]),
            ...own,
          },
          options,
        );
        await encoder.commit();
        steps.push(await out.readNumbers());
      }
      const encoder = device.encoder();
      const given = { q, qPe, kvB, latentCache, kPeCache, lengths: device.tensor("i32", [2], lengths) };
      const { out } = mlaDecode(encoder, given, options);
      const queries = mlaQPrime(encoder, { q, kvB }, { nope: 16 });
      const { q: _, kvB: __, ...cached } = given;
      const { vc } = mlaAttention(encoder, { ...cached, queries }, { softmaxScale: problem.scale });
      const parts = mlaOut(encoder, { vc, kvB }, { v: 12, outDtype: dtype });
      await encoder.commit();
      expect(await parts.readNumbers()).toEqual(await out.readNumbers());
      const expected = decompressedReference(problem);
      const { [dtype]: bar, spread } = BARS.A;
      const row = 3 * 12;
      const byToken = Float64Array.from({ length: expected.length }, (_, at) => {
        const [n, i] = [Math.floor(at / (L * row)), Math.floor(at / row) % L];
        return (steps[i] as Float64Array)[n * row + (at % row)] as number;
      });
      for (const got of [byToken, await out.readNumbers()])
        expect(within(compare(got, expected), bar, spread), JSON.stringify(compare(got, expected))).toBe(true);
      // What was appended is what the whole cache has.
      const valid = (cache: Float64Array) => cache.filter((v, i) => i < whole && !Number.isNaN(v)).length;
      expect(valid(await own.latentCache.readNumbers())).toBe((20 + 9) * 64);
    },
  );
});
