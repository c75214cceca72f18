import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { mlaSplit } from "../src/index.ts";
import { columnsReference } from "../src/reference.ts";

const random = new Random(21);

type Shape = [N: number, L: number, H: number, nope: number, rope: number, R: number];

const makeCase = ([N, L, H, nope, rope, R]: Shape): Case => ({
  name: `N ${N} L ${L} H ${H} nope ${nope} rope ${rope} R ${R}`,
  inputs: {
    q: { dtype: "act", shape: [N, L, H, nope + rope], data: random.normals(N * L * H * (nope + rope)) },
    kv: { dtype: "act", shape: [N, L, R + rope], data: random.normals(N * L * (R + rope)) },
  },
  options: { rope },
});

interface Split {
  q: Float64Array;
  kv: Float64Array;
  H: number;
  Dq: number;
  Dkv: number;
  rope: number;
}
type Parts = Record<"qNope" | "qPe" | "latent" | "kPe", Float64Array>;

const right = ({ q, kv, Dq, Dkv, rope }: Split): Parts => ({
  qNope: columnsReference(q, Dq, 0, Dq - rope),
  qPe: columnsReference(q, Dq, Dq - rope, Dq),
  latent: columnsReference(kv, Dkv, 0, Dkv - rope),
  kPe: columnsReference(kv, Dkv, Dkv - rope, Dkv),
});

const reference =
  (formula: (split: Split) => Parts): ReferenceFunction =>
  (inputs, options: { rope?: number }) => {
    const { q, kv } = inputs as Record<"q" | "kv", Reference64>;
    const [N, L, H, Dq] = q.shape as [number, number, number, number];
    const [rope, Dkv] = [options.rope as number, kv.shape[2] as number];
    const parts = formula({ q: q.data, kv: kv.data, H, Dq, Dkv, rope });
    return {
      qNope: { shape: [N, L, H, Dq - rope], data: parts.qNope },
      qPe: { shape: [N, L, H, rope], data: parts.qPe },
      latent: { shape: [N, L, Dkv - rope], data: parts.latent },
      kPe: { shape: [N, L, rope], data: parts.kPe },
    };
  };
/** Some parts are other columns. */
const instead = (change: (split: Split) => Partial<Parts>) =>
  reference((split) => ({ ...right(split), ...change(split) }));

export const suite: Suite = {
  op: mlaSplit,
  errorClass: "exact",
  reference: reference(right),
  cases: (
    [
      [1, 1, 1, 1, 1, 1],
      [1, 1, 16, 128, 64, 512],
      [2, 3, 5, 7, 3, 9],
      [1, 8, 8, 64, 32, 128],
      [3, 1, 2, 16, 16, 64],
      [1, 2, 3, 192, 64, 512],
      [2, 2, 1, 5, 300, 1],
      [1, 2, 40, 33, 6, 1200],
      [1, 33, 2, 3, 2, 5],
    ] as Shape[]
  ).map(makeCase),
  mutants: {
    "rope first": instead(({ q, Dq, rope }) => ({
      qPe: columnsReference(q, Dq, 0, rope),
      qNope: columnsReference(q, Dq, rope, Dq),
    })),
    "rope key first": instead(({ kv, Dkv, rope }) => ({
      kPe: columnsReference(kv, Dkv, 0, rope),
      latent: columnsReference(kv, Dkv, rope, Dkv),
    })),
    "all heads without position, then all to be rotated": instead(({ q, H, Dq, rope }) => ({
      qNope: columnsReference(q, H * Dq, 0, H * (Dq - rope)),
      qPe: columnsReference(q, H * Dq, H * (Dq - rope), H * Dq),
    })),
    "one column off": instead(({ q, Dq, rope }) => ({ qPe: columnsReference(q, Dq, Dq - rope - 1, Dq - 1) })),
    "head 0 for all": instead(({ q, H, Dq, rope }) => ({
      qPe: columnsReference(
        q.map((_, i) => q[Math.floor(i / (H * Dq)) * H * Dq + (i % Dq)] as number),
        Dq,
        Dq - rope,
        Dq,
      ),
    })),
    "first token for all": instead(({ kv, Dkv, rope }) => ({
      latent: columnsReference(
        kv.map((_, i) => kv[i % Dkv] as number),
        Dkv,
        0,
        Dkv - rope,
      ),
    })),
    "last row of kv not written": instead(({ kv, Dkv, rope }) => ({
      kPe: columnsReference(kv, Dkv, Dkv - rope, Dkv).map((v, i, all) => (i < all.length - rope ? v : Number.NaN)),
    })),
    "output left unwritten": instead(({ q, Dq, rope }) => ({
      qNope: columnsReference(q, Dq, 0, Dq - rope).fill(Number.NaN),
    })),
  },
};
