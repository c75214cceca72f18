import { roundTo } from "@mlxts/core";
import { Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { deltaGates } from "../src/index.ts";
import { deltaGatesReference } from "../src/reference.ts";

const random = new Random(11);

interface Options {
  betaScale?: number;
  lowerBound?: number;
}

interface Given {
  a?: (i: number) => number;
  aLog?: (heads: number) => Float64Array;
  /** Gates a head; absent: one, and no dimension for it. */
  channels?: number | undefined;
}

function makeCase(
  lead: readonly number[],
  heads: number,
  options: Options = {},
  { a = () => 3 * random.normal(), aLog = (n) => random.uniforms(n, 0, 2.8), channels }: Given = {},
) {
  const shape = [...lead, heads];
  const own = channels === undefined ? [] : [channels];
  const count = shape.reduce((x, y) => x * y, 1);
  const gates = channels ?? 1;
  const data = Float64Array.from({ length: count * gates }, (_, i) => a(i));
  return {
    name: `[${[...shape, ...own]}] ${JSON.stringify(options)} from ${a(0).toPrecision(3)}`,
    inputs: {
      a: { dtype: "act" as const, shape: [...shape, ...own], data },
      b: { dtype: "act" as const, shape, data: random.normals(count, 2) },
      aLog: { dtype: "f32" as const, shape: [heads], data: aLog(heads) },
      dtBias: { dtype: "f32" as const, shape: [heads, ...own], data: random.normals(heads * gates) },
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
    return { g: { shape: a.shape, data: g }, beta: { shape: b.shape, data: beta } };
  };

/** The gates with g from another formula of x = a + dtBias and A_log. */
const gate = (formula: (x: number, aLog: number, lowerBound: number | undefined, a: number) => number) =>
  reference((a, b, aLog, dtBias, betaScale, lowerBound) => {
    const channels = dtBias.length / aLog.length;
    return {
      ...deltaGatesReference(a, b, aLog, dtBias, betaScale, lowerBound),
      g: a.map((x, i) => {
        const head = Math.floor(i / channels) % aLog.length;
        return formula(x + (dtBias[i % dtBias.length] as number), aLog[head] as number, lowerBound, x);
      }),
    };
  });
/** The gates of other parameters. */
const parameters = (change: (aLog: Float64Array, dtBias: Float64Array) => [Float64Array, Float64Array]) =>
  reference((a, b, aLog, dtBias, ...rest) => deltaGatesReference(a, b, ...change(aLog, dtBias), ...rest));
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
    ...[undefined, 24].flatMap((channels) => [
      makeCase([64], 8, {}, { channels, a: () => random.uniform() * 1000 }),
      makeCase([64], 8, {}, { channels, a: () => 20 + random.normal() }),
      makeCase([64], 8, {}, { channels, a: (i) => (i % 2 ? -1 : 1) * (i % 3 ? 88 : 200) + random.normal() }),
      makeCase([64], 8, {}, { channels, a: () => -2 - 12 * random.uniform() }),
      makeCase([64], 8, {}, { channels, a: () => -200 * random.uniform() }),
      makeCase([40], 8, {}, { channels, aLog: (n) => random.uniforms(n, -3, 5) }),
      makeCase([40], 8, { lowerBound: -5, betaScale: 2 }, { channels, aLog: (n) => random.uniforms(n, -3, 5) }),
      makeCase([40], 8, { lowerBound: -5 }, { channels, a: () => 40 * random.normal() }),
    ]),
    ...[1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 128, 136, 256].map((channels) =>
      makeCase([2, Math.ceil(100 / channels)], 3, {}, { channels }),
    ),
    ...[1, 2, 5, 16].map((heads) => makeCase([1, 3], heads, { betaScale: 2, lowerBound: -5 }, { channels: 96 })),
    makeCase([], 8, {}, { channels: 64 }),
    makeCase([3, 1, 7], 4, {}, { channels: 20 }),
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
    "A_log rounded to bf16": parameters((aLog, dtBias) => [aLog.map((x) => roundTo("bf16", x)), dtBias]),
    "dtBias of a head's first channel": parameters((aLog, dtBias) => {
      const channels = dtBias.length / aLog.length;
      return [aLog, dtBias.map((_, i) => dtBias[i - (i % channels)] as number)];
    }),
    "dtBias [K, H]": parameters((aLog, dtBias) => {
      const heads = aLog.length;
      const channels = dtBias.length / heads;
      return [aLog, dtBias.map((_, i) => dtBias[(i % channels) * heads + Math.floor(i / channels)] as number)];
    }),
    "A_log of the next head": parameters((aLog, dtBias) => [
      aLog.map((_, i) => aLog[(i + 1) % aLog.length] as number),
      dtBias,
    ]),
    "A_log by channel": reference((a, b, aLog, dtBias, ...rest) => {
      const { beta } = deltaGatesReference(a, b, aLog, dtBias, ...rest);
      const each = dtBias.map((_, i) => aLog[i % aLog.length] as number);
      return { beta, g: deltaGatesReference(a, b, each, dtBias, ...rest).g };
    }),
    "parameters rounded to f16": parameters((aLog, dtBias) => [
      aLog.map((x) => roundTo("f16", x)),
      dtBias.map((x) => roundTo("f16", x)),
    ]),
    "lowerBound ignored": gate((x, aLog) => unbounded(x, aLog)),
    "betaScale ignored": reference((a, b, aLog, dtBias, _, lowerBound) =>
      deltaGatesReference(a, b, aLog, dtBias, 1, lowerBound),
    ),
    "beta without sigmoid": reference((a, b, aLog, dtBias, betaScale, lowerBound) => ({
      ...deltaGatesReference(a, b, aLog, dtBias, betaScale, lowerBound),
      beta: b.map((x) => x * betaScale),
    })),
    "lowerBound without A_log": gate((x, _, lowerBound = Number.NaN) => lowerBound / (1 + Math.exp(-x))),
    "lowerBound for the whole gate": gate((x, aLog, lowerBound = -1e30) => Math.max(lowerBound, unbounded(x, aLog))),
    "a and b swapped": reference((a, b, ...rest) =>
      a.length === b.length ? deltaGatesReference(b, a, ...rest) : deltaGatesReference(a, b, ...rest),
    ),
  },
};
