// Ops of a few words for the tests of recordings, and rules by which two become one.
import { type CommandEncoder, defineFusion, defineKernel, defineOp, type Tensor } from "../../src/index.ts";
import { accumulateKernel, increment, incrementKernel, probeLibrary } from "./probe.ts";

const words = { dtype: ["u32"], shape: "N" } as const;

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
  for (let word = 0; word < x.size; word++)
    encoder.dispatch(accumulateKernel, {
      op,
      variant: "u32",
      buffers: { x: x.slice(word, word + 1), y: undefined, total: total.slice(word, word + 1) },
      params: {},
      sizes: {},
    });
}

/** out = a + 1 + b. */
export const mix = defineOp({
  name: "mix",
  summary: "a + 1 + b",
  inputs: { a: words, b: words },
  outputs: { out: { ...words, inPlace: ["a"] } },
  params: {},
  encode({ encoder, op, inputs: { a, b }, outputs: { out } }) {
    encodeIncrement(encoder, op, a, out);
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
