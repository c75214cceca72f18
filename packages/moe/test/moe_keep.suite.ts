import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moeKeep } from "../src/index.ts";
import { keepReference } from "../src/reference.ts";

const random = new Random(21);

interface Given {
  tokens: number;
  topK: number;
  experts: number;
  keep: number;
  /** Ages are below it; an expert of age 0 is not kept. */
  oldest?: number;
  indices?: (pair: number) => number;
  ages?: (expert: number) => number;
}

const keepCase = (
  name: string,
  { tokens, topK, experts, keep, oldest = 9, indices, ages = () => random.below(oldest) }: Given,
): Case => ({
  name: `${name} [${tokens}, ${topK}] of ${experts}, ${keep} kept`,
  inputs: {
    indices: {
      dtype: "u32",
      shape: [tokens, topK],
      data: Float64Array.from(
        indices ? { length: tokens * topK } : random.integers(tokens * topK, experts),
        (given, i) => (indices ? indices(i) : (given as number)),
      ),
    },
    ages: { dtype: "u32", shape: [experts], data: Float64Array.from({ length: experts }, (_, e) => ages(e)) },
  },
  options: { keep },
  dtypes: ["f32"],
});

type Kept = ReturnType<typeof keepReference>;

const kept =
  (f: (indices: Float64Array, ages: Float64Array, keep: number) => Kept): ReferenceFunction =>
  ({ indices, ages }: Record<string, Reference64>, { keep }: Record<string, number>) => {
    const { shape } = ages as Reference64;
    const { aged, chosen, evicted } = f((indices as Reference64).data, (ages as Reference64).data, keep as number);
    return { aged: { shape, data: aged }, chosen: { shape, data: chosen }, evicted: { shape, data: evicted } };
  };

const reversed = (data: Float64Array) => data.slice().reverse();

const cases = [
  keepCase("the first call", { tokens: 1, topK: 8, experts: 64, keep: 16, ages: () => 0 }),
  keepCase("a step", { tokens: 1, topK: 10, experts: 512, keep: 64 }),
  keepCase("a step", { tokens: 1, topK: 8, experts: 128, keep: 40 }),
  keepCase("nothing to evict", { tokens: 1, topK: 4, experts: 60, keep: 60 }),
  keepCase("one kept", { tokens: 1, topK: 1, experts: 2, keep: 1, oldest: 2 }),
  keepCase("one expert", { tokens: 3, topK: 1, experts: 1, keep: 1 }),
  keepCase("all of one age", { tokens: 1, topK: 3, experts: 50, keep: 20, ages: () => 7 }),
  keepCase("more chosen than kept", { tokens: 40, topK: 6, experts: 60, keep: 12 }),
  keepCase("all chosen", { tokens: 64, topK: 10, experts: 512, keep: 30, indices: (pair) => pair % 512 }),
  keepCase("the last expert alone", { tokens: 9, topK: 2, experts: 33, keep: 4, indices: () => 32 }),
  keepCase("the oldest there can be", {
    tokens: 1,
    topK: 2,
    experts: 40,
    keep: 35,
    ages: (e) => (e % 3 === 0 ? 0xffffffff : 0xfffffff0 + (e % 16)),
  }),
  keepCase("more experts than any model has", { tokens: 3, topK: 7, experts: 2017, keep: 700, oldest: 40 }),
  keepCase("many tokens", { tokens: 257, topK: 2, experts: 8, keep: 3 }),
];

export const suite: Suite = {
  op: moeKeep,
  errorClass: "exact",
  reference: kept(keepReference),
  cases: [
    ...cases,
    { ...keepCase("in place", { tokens: 2, topK: 5, experts: 70, keep: 30 }), inPlace: { aged: "ages" } },
  ],
  mutants: {
    "the youngest go": kept((indices, ages, keep) => {
      const most = ages.reduce((a, b) => Math.max(a, b));
      const { evicted } = keepReference(
        indices,
        ages.map((age) => age && most + 1 - age),
        keep,
      );
      const right = keepReference(indices, ages, ages.length);
      return { ...right, evicted, aged: right.aged.map((age, e) => (evicted[e] ? 0 : age)) };
    }),
    "of equal ages the higher index goes first": kept((indices, ages, keep) => {
      const { aged, chosen, evicted } = keepReference(
        indices.map((e) => ages.length - 1 - e),
        reversed(ages),
        keep,
      );
      return { aged: reversed(aged), chosen: reversed(chosen), evicted: reversed(evicted) };
    }),
    "a chosen expert does not become young": kept((indices, ages, keep) => {
      const { aged, evicted } = keepReference(new Float64Array(0), ages, keep);
      return { aged, evicted, chosen: keepReference(indices, ages, keep).chosen };
    }),
    "ages stay": kept((indices, ages, keep) => {
      const right = keepReference(indices, ages, keep);
      return { ...right, aged: right.aged.map((age, e) => (age > 1 ? (ages[e] as number) : age)) };
    }),
    "experts that are not kept grow old": kept((indices, ages, keep) => {
      const right = keepReference(indices, ages, keep);
      return { ...right, aged: right.aged.map((age) => age || 1) };
    }),
    "the oldest age wraps around": kept((indices, ages, keep) => {
      const right = keepReference(indices, ages, keep);
      return { ...right, aged: right.aged.map((age, e) => (age > 1 && ages[e] === 0xffffffff ? 0 : age)) };
    }),
    "an evicted expert keeps its age": kept((indices, ages, keep) => ({
      ...keepReference(indices, ages, keep),
      aged: keepReference(indices, ages, ages.length).aged,
    })),
    "one more is kept": kept((indices, ages, keep) => keepReference(indices, ages, keep + 1)),
    "chosen experts are never evicted": kept((indices, ages, keep) => {
      const right = keepReference(indices, ages, keep);
      const spared = right.chosen.map((flag, e) => (flag && right.evicted[e] ? 1 : 0));
      return {
        chosen: right.chosen,
        evicted: right.evicted.map((flag, e) => (spared[e] ? 0 : flag)),
        aged: right.aged.map((age, e) => (spared[e] ? 1 : age)),
      };
    }),
    "an expert counts once for each choice": kept((indices, ages, keep) => {
      const right = keepReference(indices, ages, keep);
      return { ...right, chosen: right.chosen.map((_, e) => indices.filter((index) => index === e).length) };
    }),
  },
};
