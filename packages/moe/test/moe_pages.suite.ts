// What the system does with the advice: moe_pages.test.ts. Here all bytes are in memory, as on a GPU.
import { ELSEWHERE } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moePages } from "../src/index.ts";
import { pagesReference } from "../src/reference.ts";

const random = new Random(22);
const BYTES: Record<string, number> = { u32: 4, bf16: 2, u8: 1 };

const pagesCase = (
  name: string,
  dtype: "u32" | "bf16" | "u8",
  shape: readonly [experts: number, ...number[]],
  advice: "fetch" | "evict" = "fetch",
): Case => {
  const [experts] = shape;
  const size = shape.reduce((a, b) => a * b, 1);
  return {
    name: `${name}, ${advice}: ${dtype} [${shape}]`,
    inputs: {
      stack: { dtype, shape, data: random.integers(size, 100) },
      chosen: { dtype: "u32", shape: [experts], data: random.integers(experts, 3) },
    },
    options: { advice },
    ask: { resident: { dtype: "u32", shape: [experts] } },
    dtypes: ["f32"],
  };
};

const startsCase = (
  name: string,
  starts: readonly number[],
  elements: number,
  size: number,
  advice: "fetch" | "evict" = "fetch",
): Case => {
  const { inputs, ask } = pagesCase("", "bf16", [starts.length, 1]);
  return {
    name: `${name}, ${advice}: ${elements} of ${size} elements each`,
    inputs: {
      stack: { dtype: "bf16", shape: [size], data: random.integers(size, 100) },
      starts: { dtype: "u32", shape: [starts.length], data: starts },
      chosen: inputs.chosen as never,
    },
    options: { advice, elements },
    ...(ask && { ask }),
    dtypes: ["f32"],
  };
};

const resident =
  (f: (chosen: Float64Array, expertBytes: number) => Float64Array): ReferenceFunction =>
  ({ stack, chosen, starts }: Record<string, Reference64>, { elements }: Record<string, number>) => {
    const { shape, data } = chosen as Reference64;
    const { data: all, shape: dims } = stack as Reference64;
    const unit = starts ? 2 : (BYTES[dtypeOf.get(dims.join()) as string] as number);
    const held = data.map((flag, e) => (starts?.data[e] === ELSEWHERE ? 0 : flag));
    return { resident: { shape, data: f(held, (elements ?? all.length / data.length) * unit) } };
  };

const cases = [
  pagesCase("less than a page", "u32", [16, 5, 7]),
  pagesCase("less than a page", "bf16", [16, 9], "evict"),
  pagesCase("a page, not aligned", "bf16", [5, 2048]),
  pagesCase("several pages", "u32", [12, 33, 129]),
  pagesCase("several pages", "u8", [9, 20001], "evict"),
  { ...pagesCase("several pages at an odd byte", "u32", [12, 33, 131]), anyByte: ["stack"] },
  pagesCase("several pieces", "u32", [3, 50000]),
  pagesCase("one expert", "u8", [1, 1]),
  pagesCase("many experts", "u8", [512, 37]),
];
/** The suite's shapes are all different: what each has elements of. */
const dtypeOf = new Map(cases.map(({ inputs: { stack } }) => [stack?.shape.join(), stack?.dtype]));

export const suite: Suite = {
  op: moePages,
  errorClass: "exact",
  reference: resident(pagesReference),
  cases: [
    ...cases,
    { ...startsCase("apart, at odd bytes", [70, 2000, 9000], 300, 10000), anyByte: ["stack"] },
    startsCase("apart", [70, 2000, 9000, 4000, 0, 9700], 300, 10000),
    startsCase("overlapping, up to the end", [100, 0, 50, 100], 5000, 5100, "evict"),
    startsCase("all of it", [0], 64, 64),
    startsCase("some elsewhere", [70, ELSEWHERE, 9000, ELSEWHERE, 0, 9700], 300, 10000),
    startsCase("all elsewhere but the last", [ELSEWHERE, ELSEWHERE, ELSEWHERE, 9], 5000, 5100, "evict"),
  ],
  mutants: {
    "experts that are not chosen": resident((chosen, bytes) => chosen.map(() => bytes)),
    "those that are not chosen instead": resident((chosen, bytes) => chosen.map((flag) => (flag ? 0 : bytes))),
    "only a 1 is a choice": resident((chosen, bytes) => chosen.map((flag) => (flag === 1 ? bytes : 0))),
    "experts elsewhere, too": ({ stack, chosen, starts }, options, act) =>
      resident(pagesReference)(
        { stack, chosen, ...(starts && { starts: { ...starts, data: starts.data.map(() => 0) } }) } as never,
        options,
        act,
      ),
    "elements, not bytes": resident((chosen, bytes) => chosen.map((flag) => (flag ? bytes / 4 : 0))),
    "whole pages": resident((chosen, bytes) => chosen.map((flag) => (flag ? Math.ceil(bytes / 4096) * 4096 : 0))),
    "the next expert": resident((chosen, bytes) =>
      pagesReference(
        chosen.map((_, e) => chosen[e + 1] ?? 0),
        bytes,
      ),
    ),
  },
};
