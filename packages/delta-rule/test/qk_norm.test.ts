import { FLOATS } from "@mlxts/core";
import { BARS, compare, Random, sameBytes, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { encodeMaskValues } from "../src/mask_values.ts";
import type { RuleOptions } from "../src/options.ts";
import { encodeQkNorm } from "../src/qk_norm.ts";

const B = 2;
const T = 23;
const SKIPPED = [0, 7, 22, 23, 40];
const mask = () => Uint8Array.from({ length: B * T }, (_, token) => (SKIPPED.includes(token) ? 0 : 1 + (token % 255)));

/** What x of a row is divided by, in f64. */
const DIVISORS: Record<Exclude<RuleOptions["qkNorm"], "none">, (squares: number, K: number, eps: number) => number> = {
  "sum-eps": (squares, _, eps) => Math.sqrt(squares + eps),
  "mean-eps": (squares, K, eps) => Math.sqrt(squares / K + eps) * Math.sqrt(K),
  "max-eps": (squares, _, eps) => Math.max(Math.sqrt(squares), eps),
};

function normalized(x: Float64Array, K: number, divisor: (squares: number, K: number, eps: number) => number) {
  const out = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += K) {
    const values = x.subarray(row, row + K);
    const by = divisor(
      values.reduce((sum, value) => sum + value * value, 0),
      K,
      1e-3,
    );
    values.forEach((value, i) => {
      out[row + i] = value / by;
    });
  }
  return out;
}

/** Whether elements of `width` belong to a token that is skipped. */
const skips = (i: number, width: number) => SKIPPED.includes(Math.floor(i / width));

for (const [name, open] of DEVICES)
  describe(`on ${name}`, () => {
    const random = new Random(41);
    for (const act of FLOATS)
      for (const [Hk, K] of [
        [3, 8],
        [1, 72],
        [2, 136],
        [1, 256],
      ] as const)
        for (const masked of [false, true])
          it(`qk_norm ${act}, Hk ${Hk}, K ${K}${masked ? ", masked" : ""}`, async () => {
            using device = open();
            const shape = [B, T, Hk, K];
            const size = B * T * Hk * K;
            const tokens = device.tensor("u8", [B, T], mask());
            // Rows of norms around eps, where the kinds differ.
            for (const length of [1, 0.003, 0.001]) {
              const numbers = () => {
                const x = random.normals(size, length / Math.sqrt(K));
                return x.map((value, i) => (masked && skips(i, Hk * K) ? Number.NaN : value));
              };
              const q = device.tensor(act, shape, numbers());
              const k = device.tensor(act, shape, numbers());
              for (const qkNorm of ["none", "sum-eps", "mean-eps", "max-eps"] as const) {
                const junk = new Float64Array(size).fill(Number.NaN);
                const outputs = { qUnit: device.tensor(act, shape, junk), kUnit: device.tensor(act, shape, junk) };
                const encoder = device.encoder();
                const both = { q: { of: q, unit: outputs.qUnit }, k: { of: k, unit: outputs.kUnit } };
                const apart = [{ q: both.q }, { k: both.k }];
                for (const rows of qkNorm === "max-eps" ? apart : [both])
                  encodeQkNorm(
                    encoder,
                    "qkNorm",
                    { ...rows, mask: masked ? tokens : undefined },
                    { qkNorm, qkNormEps: 1e-3 },
                  );
                await encoder.commit();
                for (const [from, to] of [
                  [q, outputs.qUnit],
                  [k, outputs.kUnit],
                ] as const) {
                  const x = Float64Array.from(await from.readNumbers());
                  const expected = (qkNorm === "none" ? x : normalized(x, K, DIVISORS[qkNorm])).map((value, i) =>
                    masked && skips(i, Hk * K) ? 0 : value,
                  );
                  const out = await to.readNumbers();
                  if (qkNorm === "none") expect(compare(out, expected)).toMatchObject({ maxAbs: 0, finite: true });
                  else {
                    const { spread } = BARS.S;
                    const comparison = compare(out, expected);
                    expect(within(comparison, BARS.S[act], spread), JSON.stringify({ qkNorm, comparison })).toBe(true);
                  }
                }
              }
            }
          });

    for (const act of FLOATS)
      for (const [H, V] of [
        [3, 1],
        [2, 32],
        [5, 77],
      ] as const)
        it(`mask_values ${act}, H ${H}, V ${V}`, async () => {
          using device = open();
          const values = random.normals(B * T * H * V).map((x, i) => (skips(i, H * V) ? Number.NaN : x));
          const betas = random.uniforms(B * T * H, 0, 1).map((x, i) => (skips(i, H) ? Number.NaN : x));
          const v = device.tensor(act, [B, T, H, V], values);
          const beta = device.tensor("f32", [B, T, H], betas);
          const vKept = device.tensor(act, [B, T, H, V], values.fill(Number.NaN));
          const betaKept = device.tensor("f32", [B, T, H], betas.fill(Number.NaN));
          const encoder = device.encoder();
          encodeMaskValues(encoder, "maskValues", {
            v,
            beta,
            mask: device.tensor("u8", [B, T], mask()),
            vKept,
            betaKept,
          });
          await encoder.commit();
          for (const [from, to, width] of [
            [v, vKept, H * V],
            [beta, betaKept, H],
          ] as const) {
            const expected = ((await from.read()) as Uint16Array).map((bits, i) => (skips(i, width) ? 0 : bits));
            expect(sameBytes(await to.read(), expected)).toBe(true);
          }
        });
  });
