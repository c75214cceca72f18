// Ops of a few words for the tests of recordings, and rules by which two become one.
import { type CommandEncoder, defineFusion, defineKernel, defineOp, type Tensor } from "../../src/index.ts";
import { accumulateKernel, increment, incrementKernel, probeLibrary } from "./probe.ts";

const words = { dtype: ["u32"], shape: "... N" } as const;

const word = (x: Tensor, index: number): Tensor => x.reshape([x.size]).slice(index, index + 1);

function encodeIncrement(encoder: CommandEncoder, op: string, x: Tensor, out: Tensor): void {
  encoder.dispatch(incrementKernel, {
    op,
    variant: "u32",
    buffers: { x, out },
    params: { perGroup: x.size, microseconds: 0 },
    sizes: { groups: 1 },
  });
}

/** Adds x to total, word by word. */
function encodeSum(encoder: CommandEncoder, op: string, x: Tensor, total: Tensor): void {
  for (let i = 0; i < x.size; i++)
    encoder.dispatch(accumulateKernel, {
      op,
      variant: "u32",
      buffers: { x: word(x, i), y: undefined, total: word(total, i) },
      params: {},
      sizes: {},
    });
}

/** out = a + 1 + b, word by word. */
export const mix = defineOp({
  name: "mix",
  summary: "a + 1 + b",
  inputs: { a: words, b: words },
  outputs: { out: { ...words, inPlace: ["a"] } },
  params: {},
  encode({ encoder, op, inputs: { a, b }, outputs: { out } }) {
    for (let i = 0; i < a.size; i++) encodeIncrement(encoder, op, word(a, i), word(out, i));
    encodeSum(encoder, op, b, out);
  },
});

/** next = x + 1 and, where it is asked for, twice = x + 2. */
export const count = defineOp({
  name: "count",
  summary: "x + 1 and x + 2",
  inputs: { x: words },
  outputs: { next: { ...words, inPlace: ["x"] }, twice: { ...words, optional: true } },
  params: { start: { kind: "choice", values: [0, 1], default: 0 } },
  encode({ encoder, op, inputs: { x }, outputs: { next, twice } }) {
    encodeIncrement(encoder, op, x, next);
    if (twice) encodeIncrement(encoder, op, next, twice);
  },
});

/** out = x + 1 + 1 + b, and the first sum where it is asked for. */
export const countMix = defineOp({
  name: "countMix",
  summary: "x + 2 + b",
  inputs: { x: words, b: words },
  outputs: { next: { ...words, inPlace: ["x"], optional: true }, out: { ...words, inPlace: ["x"] } },
  params: { start: { kind: "choice", values: [0, 1], default: 0 } },
  encode({ encoder, op, inputs: { x, b }, outputs: { next, out } }) {
    const first = next ?? encoder.empty("u32", x.shape);
    encodeIncrement(encoder, op, x, first);
    encodeIncrement(encoder, op, first, out);
    encodeSum(encoder, op, b, out);
  },
});

/** An op that rules take for `count`, but which calls another op and adds 2. */
export const countByOps = defineOp({
  name: "count",
  summary: "x + 2",
  inputs: { x: words },
  outputs: { next: words },
  params: { start: { kind: "choice", values: [0, 1], default: 0 } },
  encode({ encoder, op, inputs: { x }, outputs: { next } }) {
    increment(encoder, { x, out: next });
    encodeIncrement(encoder, op, next, next);
  },
});

/** The kernel that adds 1, as if it wrote nothing. */
const silentKernel = defineKernel({
  library: probeLibrary,
  name: "increment",
  variants: ["u32"],
  buffers: { x: "read", out: "read" },
  params: { perGroup: "u32", microseconds: "u32" },
  launch: {
    cpu: (_: object) => ({ threadgroups: [1, 1, 1] as const }),
    gpu: (_: object) => ({ threadgroups: [1, 1, 1] as const }),
  },
});

/** A dispatch that declares no write: what it does is not known. */
export function silent(encoder: CommandEncoder, x: Tensor, out: Tensor): void {
  const params = { perGroup: x.size, microseconds: 0 };
  encoder.dispatch(silentKernel, { op: "silent", variant: "u32", buffers: { x, out }, params, sizes: {} });
}

/** first = a + 1 + b and second = a + 1 + c. */
export const mixTwo = defineOp({
  name: "mixTwo",
  summary: "a + 1 + b and a + 1 + c",
  inputs: { a: words, b: words, c: words },
  outputs: { first: words, second: words },
  params: {},
  encode({ encoder, op, inputs: { a, b, c }, outputs: { first, second } }) {
    for (const [addend, out] of [
      [b, first],
      [c, second],
    ] as const) {
      encodeIncrement(encoder, op, a, out);
      encodeSum(encoder, op, addend, out);
    }
  },
});

/** twice = x + 2 and out = x + 2 + b. */
export const keepTwice = defineOp({
  name: "keepTwice",
  summary: "x + 2 and x + 2 + b",
  inputs: { x: words, b: words },
  outputs: { twice: words, out: words },
  params: {},
  encode({ encoder, op, inputs: { x, b }, outputs: { twice, out } }) {
    encodeIncrement(encoder, op, x, out);
    encodeIncrement(encoder, op, out, twice);
    encodeIncrement(encoder, op, out, out);
    encodeSum(encoder, op, b, out);
  },
});

/** out = x + y + 3. */
export const countBoth = defineOp({
  name: "countBoth",
  summary: "x + y + 3",
  inputs: { x: words, y: words },
  outputs: { out: words },
  params: {},
  encode({ encoder, op, inputs: { x, y }, outputs: { out } }) {
    const [one, two] = [encoder.empty("u32", x.shape), encoder.empty("u32", x.shape)];
    encodeIncrement(encoder, op, x, one);
    encodeIncrement(encoder, op, one, out);
    encodeIncrement(encoder, op, y, two);
    encodeSum(encoder, op, two, out);
  },
});

const calls = { first: "count", second: "mix" };
const options = { start: "first.start" };
const when = { "first.start": [0] };

/** count + mix by `a`, whose intermediate is left out. */
export const countMixFusion = defineFusion({
  calls,
  links: { "second.a": "first.next" },
  into: countMix,
  tensors: { x: "first.x", b: "second.b", out: "second.out" },
  options,
  when,
});

/** The same with the intermediate written. */
export const countAndMixFusion = defineFusion({
  calls,
  links: { "second.a": "first.next" },
  into: countMix,
  tensors: { x: "first.x", next: "first.next", b: "second.b", out: "second.out" },
  options,
  when,
});

/** Two calls of mix that add to the same `a`. */
export const mixTwoFusion = defineFusion({
  calls: { one: "mix", two: "mix" },
  same: { "two.a": "one.a" },
  into: mixTwo,
  tensors: { a: "one.a", b: "one.b", c: "two.b", first: "one.out", second: "two.out" },
});

/** Two calls of count whose outputs a mix adds. */
export const countBothFusion = defineFusion({
  calls: { one: "count", two: "count", sum: "mix" },
  links: { "sum.a": "one.next", "sum.b": "two.next" },
  same: { "two.start": "one.start" },
  into: countBoth,
  tensors: { x: "one.x", y: "two.x", out: "sum.out" },
  when: { "one.start": [0] },
});

/** The same as countMixFusion where what is linked has two shapes: `count` of rows, `mix` of all words. */
export const reshapedFusion = defineFusion({
  calls,
  links: { "second.a": "first.next" },
  into: countMix,
  tensors: { x: "first.x", b: "second.b", out: "second.out" },
  shapes: { x: "second.out" },
  options,
  when,
});

/** out = x + 1 + 1 + x + 1. */
export const countBothMix = defineOp({
  name: "countBothMix",
  summary: "2 · x + 3",
  inputs: { x: words },
  outputs: { out: words },
  params: {},
  encode({ encoder, op, inputs: { x }, outputs: { out } }) {
    const next = encoder.empty("u32", x.shape);
    encodeIncrement(encoder, op, x, next);
    encodeIncrement(encoder, op, next, out);
    encodeSum(encoder, op, next, out);
  },
});

/** next = x + 1, out = a + 1 + x. */
export const countBesideMix = defineOp({
  name: "countBesideMix",
  summary: "x + 1 and a + 1 + x",
  inputs: { x: words, a: words },
  outputs: { next: { ...words, inPlace: ["a"] }, out: { ...words, inPlace: ["a"] } },
  params: {},
  encode({ encoder, op, inputs: { x, a }, outputs: { next, out } }) {
    encodeIncrement(encoder, op, a, out);
    encodeSum(encoder, op, x, out);
    encodeIncrement(encoder, op, x, next);
  },
});

/** Two counts of one tensor, both left out, and the sum of them. */
export const countBothMixFusion = defineFusion({
  calls: { one: "count", other: "count", sum: "mix" },
  links: { "sum.a": "one.next", "sum.b": "other.next" },
  same: { "one.x": "other.x" },
  into: countBothMix,
  tensors: { x: "one.x", out: "sum.out" },
});

/** Calls of two ops that read one tensor. */
export const countBesideMixFusion = defineFusion({
  calls: { first: "count", second: "mix" },
  same: { "first.x": "second.b" },
  into: countBesideMix,
  tensors: { x: "first.x", a: "second.a", next: "first.next", out: "second.out" },
});
