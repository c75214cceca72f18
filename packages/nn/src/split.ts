import { defineKernel, defineOp, type OpContext } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Split } from "./signatures.ts";
import { COPIED, type CopySizes, copiedElements, copyThreads, rowsCopied } from "./slice.ts";

const LETTERS = ["A", "B", "C", "D"] as const;

export const splitKernel = defineKernel({
  library: nnLibrary,
  name: "split",
  variants: ["u8", "u16", "u32"],
  buffers: { x: "read", outA: "write", outB: "write", outC: "write?", outD: "write?" },
  params: {
    dim: "u32",
    rows: "u32",
    beginA: "u32",
    sizeA: "u32",
    beginB: "u32",
    sizeB: "u32",
    beginC: "u32",
    sizeC: "u32",
    beginD: "u32",
    sizeD: "u32",
  },
  launchParams: { cpu: { rowsPerThreadgroup: "u32" } },
  // Elements of a row of an output that a thread copies.
  constants: { gpu: { perThread: 4 } },
  launch: {
    cpu: rowsCopied,
    // Each output has threadgroups of its own, as many as the widest one takes.
    gpu: ({ rows, widest, outputs }: CopySizes & { widest: number; outputs: number }, { constants }) => {
      const { threadgroups, ...threads } = copyThreads({ rows, size: widest }, constants.perThread);
      return { threadgroups: [threadgroups[0], threadgroups[1], outputs], ...threads };
    },
  },
});

/** The ranges whose numbers are given. */
const rangesOf = (options: Readonly<Record<string, unknown>>) =>
  LETTERS.map((letter) => ({
    letter,
    begin: options[`begin${letter}`] as number,
    size: options[`size${letter}`] as number,
  })).filter(({ begin, size }) => begin !== undefined && size !== undefined);

/** What the kernel is told of outputs that are not there. */
const NO_RANGES = { beginA: 0, sizeA: 0, beginB: 0, sizeB: 0, beginC: 0, sizeC: 0, beginD: 0, sizeD: 0 };

const BEGIN = { kind: "number", integer: true, min: 0 } as const;
const SIZE = { kind: "number", integer: true, min: 1 } as const;

const output = (size: "sizeA" | "sizeB" | "sizeC" | "sizeD") =>
  ({
    dtype: ["=x"],
    shape: {
      text: `..., ${size}`,
      of: ({ lead, options }: Pick<OpContext, "lead" | "options">) => [...lead, options[size] as number],
    },
  }) as const;

/**
 * Two to four ranges of columns of one tensor, each copied bit by bit as `slice` does it:
 * `outA[.., i] = x[.., beginA + i]`, and so on.
 *
 * - `x` [.., D], any dtype of 1, 2 or 4 bytes; `outA` [.., sizeA] …, the same dtype. `outC` and `outD` are optional; with
 *   them go `beginC` and `sizeC`, `beginD` and `sizeD`.
 * - Of each range `begin` an integer ≥ 0, `size` an integer ≥ 1, `begin + size` ≤ D. Ranges may overlap, in any order.
 *   Those of an output that is not asked for are checked, and nothing more.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and any overlap of tensors.
 */
export const split = defineOp({
  name: "split",
  summary: "two to four ranges of columns of x",
  inputs: { x: { dtype: COPIED, shape: "... D", doc: "rows to cut" } },
  outputs: {
    outA: { ...output("sizeA"), doc: "the first range" },
    outB: { ...output("sizeB"), doc: "the second one" },
    outC: { ...output("sizeC"), optional: true, needs: ["beginC", "sizeC"], doc: "the third one" },
    outD: { ...output("sizeD"), optional: true, needs: ["beginD", "sizeD"], doc: "the fourth one" },
  },
  params: {
    beginA: { ...BEGIN, doc: "first column of `outA`" },
    sizeA: { ...SIZE, doc: "number of its columns" },
    beginB: { ...BEGIN, doc: "first column of `outB`" },
    sizeB: { ...SIZE, doc: "number of its columns" },
    beginC: { ...BEGIN, optional: true, doc: "first column of `outC`" },
    sizeC: { ...SIZE, optional: true, doc: "number of its columns" },
    beginD: { ...BEGIN, optional: true, doc: "first column of `outD`" },
    sizeD: { ...SIZE, optional: true, doc: "number of its columns" },
  },
  check({ dims, options, fail }) {
    const dim = dims.D as number;
    for (const { letter, begin, size } of rangesOf(options)) {
      if (begin >= dim) fail(`begin${letter}`, `be < D = ${dim}`, begin);
      if (begin + size > dim) fail(`size${letter}`, `be ≤ D − begin${letter} = ${dim - begin}`, size);
    }
  },
  encode({ encoder, op, inputs: { x }, outputs, options, rows, dims }) {
    const dim = dims.D as number;
    const ranges = rangesOf(options).filter(({ letter }) => outputs[`out${letter}`]);
    const columns = ranges.flatMap(({ begin, size }) => [begin, size]);
    const { elementBytes, elements } = copiedElements(x.dtype, [dim, ...columns]);
    const params: Record<string, number> = {};
    for (const { letter, begin, size } of ranges) {
      params[`begin${letter}`] = elements(begin);
      params[`size${letter}`] = elements(size);
    }
    const sizes = ranges.map(({ size }) => elements(size));
    encoder.dispatch(splitKernel, {
      op,
      variant: `u${elementBytes * 8}`,
      buffers: { x, ...outputs },
      params: { ...NO_RANGES, ...params, dim: elements(dim), rows },
      sizes: {
        rows,
        size: sizes.reduce((a, b) => a + b),
        elementBytes,
        widest: Math.max(...sizes),
        outputs: outputs.outD ? 4 : sizes.length,
      },
    });
  },
}) as Split;
