import { Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { deltaGates } from "../src/index.ts";
import { deltaGatesReference } from "../src/reference.ts";

const random = new Random(11);

interface Options {
  betaScale?: number;
  lowerBound?: number;
}

function makeCase(
  lead: readonly number[],
  heads: number,
  options: Options = {},
  a: (i: number) => number = () => 3 * random.normal(),
) {
  const shape = [...lead, heads];
  const count = shape.reduce((x, y) => x * y, 1);
  return {
    name: `[${shape}] ${JSON.stringify(options)} from ${a(0).toPrecision(3)}`,
    inputs: {
      a: { dtype: "act" as const, shape, data: Float64Array.from({ length: count }, (_, i) => a(i)) },
      b: { dtype: "act" as const, shape, data: random.normals(count, 2) },
      aLog: { dtype: "f32" as const, shape: [heads], data: random.uniforms(heads, 0, 2.8) },
      dtBias: { dtype: "f32" as const, shape: [heads], data: random.normals(heads) },
    },
    options: { ...options },
  };
}

type Formula = typeof deltaGatesReference;
const reference =
  (formula: Formula): ReferenceFunction =>
  (inputs: Record<string, Reference64>, options: Options) => {
    const { a, b, aLog, dtBias } = inputs as Record<"a" | "b" | "aLog" | "dtBias", Reference64>;
    const { g, beta } = formula(a.data, b.data, aLog.data, dtBias.data, options.betaScale ?? 1, options.lowerBound);
    return { g: { shape: a.shape, data: g }, beta: { shape: a.shape, data: beta } };
  };

/** The gates with g from another formula of x = a + dtBias and A_log. */
const gate = (formula: (x: number, aLog: number, lowerBound: number | undefined, a: number) => number) =>
  reference((a, b, aLog, dtBias, betaScale, lowerBound) => ({
    ...deltaGatesReference(a, b, aLog, dtBias, betaScale, lowerBound),
    g: a.map((x, i) => {
      const head = i % aLog.length;
      return formula(x + (dtBias[head] as number), aLog[head] as number, lowerBound, x);
    }),
  }));
const softplus = (x: number) => (x > 20 ? x : Math.log1p(Math.exp(x)));
const unbounded = (x: number, aLog: number) => -Math.exp(aLog) * softplus(x);

export const suite: Suite = {
  op: deltaGates,
  errorClass: "S",
  reference: reference(deltaGatesReference),
  cases: [
    ...[1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64].map((heads) => makeCase([2, Math.ceil(200 / heads)], heads)),
    ...[255, 256, 257, 512].map((heads) => makeCase([1], heads)),
    makeCase([97], 5),
    makeCase([40], 8, { betaScale: 2 }),
    makeCase([40], 8, { lowerBound: -5 }),
    makeCase([40], 9, { lowerBound: -0.5, betaScale: 1.5 }),
    makeCase([64], 8, {}, () => random.uniform() * 1000),
    makeCase([64], 8, {}, () => 20 + random.normal()),
    makeCase([64], 8, {}, () => -2 - 12 * random.uniform()),
    makeCase([64], 8, {}, () => -200 * random.uniform()),
  ],
  mutants: {
    "A_log not exponentiated": gate((x, aLog) => -aLog * softplus(x)),
    "sign of exp(A_log) missing": gate((x, aLog) => -unbounded(x, aLog)),
    "dtBias ignored": gate((_, aLog, __, a) => unbounded(a, aLog)),
    "relu for softplus": gate((x, aLog) => -Math.exp(aLog) * Math.max(0, x)),
    "log1p by log(1 + exp) in f32": gate(
      (x, aLog) => -Math.exp(aLog) * (x > 20 ? x : Math.log(Math.fround(1 + Math.fround(Math.exp(x))))),
    ),
    "softplus unguarded": gate((x, aLog) => -Math.exp(aLog) * Math.log(Math.fround(1 + Math.fround(Math.exp(x))))),
    "A_log rounded to bf16": gate((x, aLog) => -Math.exp(Math.round(aLog * 128) / 128) * softplus(x)),
    "lowerBound ignored": gate((x, aLog) => unbounded(x, aLog)),
    "betaScale ignored": reference((a, b, aLog, dtBias, _, lowerBound) =>
      deltaGatesReference(a, b, aLog, dtBias, 1, lowerBound),
    ),
    "beta without sigmoid": reference((a, b, aLog, dtBias, betaScale, lowerBound) => ({
      ...deltaGatesReference(a, b, aLog, dtBias, betaScale, lowerBound),
      beta: b.map((x) => x * betaScale),
    })),
    "a and b swapped": reference((a, b, ...rest) => deltaGatesReference(b, a, ...rest)),
  },
};
