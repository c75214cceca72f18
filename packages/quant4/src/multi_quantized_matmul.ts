import { type Dtype, defineKernel, defineOp, FLOATS, type OpContext, QUANTIZED, type Tensor } from "@mlxts/core";
import { quant4Library } from "./library.ts";
import {
  APPROXIMATE,
  ceil,
  checkBlock,
  checkJointScales,
  FEW_ON_CPU,
  FEW_ON_GPU,
  FEW_SCRATCH_ON_GPU,
  FEW_VARIANTS,
  fewOnGpus,
  jointDims,
  MATVEC_PARAMS,
  MATVEC_SCRATCH,
  matvecOnCpu,
  oneRowOf,
  type Seen,
  type Weights,
} from "./product_launch.ts";
import { blockFor, checkApproximate, encodeProduct } from "./quantized_matmul.ts";
import type { MultiQuantizedMatmul, Quantized } from "./signatures.ts";

interface Sizes extends Weights {
  m: number;
  /** Of each matrix; those that there are come first, and the others have 0. */
  rows: readonly [number, number, number, number];
}

const blocks = (rows: readonly number[], unit: number) => rows.reduce((sum, count) => sum + ceil(count, unit), 0);

/** Products of few rows of x with up to four matrices: the threadgroups of one matrix come after those of the one before. */
export const multiQuantizedMatvecKernel = defineKernel({
  library: quant4Library,
  name: "multi_quantized_matvec",
  variants: FEW_VARIANTS,
  buffers: {
    x: "read",
    aWeight: "read",
    aScales: "read",
    aBiases: "read",
    bWeight: "read",
    bScales: "read",
    bBiases: "read",
    cWeight: "read?",
    cScales: "read?",
    cBiases: "read?",
    dWeight: "read?",
    dScales: "read?",
    dBiases: "read?",
    outA: "write",
    outB: "write",
    outC: "write?",
    outD: "write?",
  },
  early: [
    "aWeight",
    "aScales",
    "aBiases",
    "bWeight",
    "bScales",
    "bBiases",
    "cWeight",
    "cScales",
    "cBiases",
    "dWeight",
    "dScales",
    "dBiases",
  ],
  params: { m: "u32", rowsA: "u32", rowsB: "u32", rowsC: "u32", rowsD: "u32", cols: "u32", groupSize: "u32" },
  launchParams: { cpu: MATVEC_PARAMS },
  scratch: { cpu: MATVEC_SCRATCH, gpu: FEW_SCRATCH_ON_GPU },
  mostThreads: FEW_ON_GPU.rowThreads,
  launch: {
    cpu: ({ m, rows, ...weights }: Sizes) => ({
      threadgroups: [blocks(rows, FEW_ON_CPU.blockRows), 1, 1],
      ...matvecOnCpu(m, weights),
    }),
    ...fewOnGpus(({ rows }: Sizes, groupRows) => [blocks(rows, groupRows), 1, 1]),
  },
});

/** The matrices by their names, and the products that belong to them. */
const PARTS = [
  ["a", "outA"],
  ["b", "outB"],
  ["c", "outC"],
  ["d", "outD"],
] as const;
type Name = (typeof PARTS)[number][0];

const namesOf = (c: Seen): Name[] => PARTS.flatMap(([name]) => (c.tensors[`${name}.weight`] ? [name] : []));

interface Plan extends Weights {
  m: number;
  rows: { readonly [K in Name]?: number };
}

function planOf(c: Seen): Plan | undefined {
  const names = namesOf(c);
  const all = jointDims(c, names);
  const [first] = all ?? [];
  if (!all || !first) return undefined;
  const { cols, groupSize } = first;
  const rows = Object.fromEntries(names.map((name, i) => [name, all[i]?.rows]));
  return { m: (c.tensors.x as Tensor).size / cols, rows, cols, groupSize };
}

const matrix = (doc: string) => ({ ...QUANTIZED, doc }) as const;
const product = (name: Name) =>
  ({
    dtype: (c: OpContext) => (c.options.outDtype ?? c.tensors.x?.dtype) as Dtype,
    shape: {
      text: `..., rows${name.toUpperCase()}`,
      of: (c: OpContext) => [...(c.tensors.x as Tensor).shape.slice(0, -1), (planOf(c) as Plan).rows[name] ?? 0],
    },
    doc: `x · ${name}ᵀ`,
  }) as const;

/**
 * Products of one x with two to four quantized matrices: `outA = x · aᵀ`, `outB = x · bᵀ` and so on. Queries, keys and
 * values of attention, in one dispatch.
 *
 * - `x` [.., cols], f32, f16 or bf16; `a`, `b`, and optionally `c` and `d` `Quantized` [rows, cols], each with rows of its own,
 *   with bits 4 or 8: all have the same bits and group size, and scales of one dtype. `outA` [.., rowsA] and so on. `c` and `d`
 *   are multiplied where `outC` and `outD` are asked for.
 * - `outDtype` f32, f16 or bf16 of all products; default the dtype of x.
 * - `approximate` as in `quantizedMatmul`; default: exact.
 *
 * Each product has the bits of `quantizedMatmul`. Up to 8 rows of x take one dispatch, more one for each matrix. Errors: as
 * of `quantizedMatmul`, and `InvalidArgument` for matrices that differ or are stacks, and for a product that is asked for
 * without its matrix.
 */
export const multiQuantizedMatmul = defineOp({
  name: "multiQuantizedMatmul",
  summary: "x · aᵀ, x · bᵀ, x · cᵀ, x · dᵀ, each matrix scale·q + bias",
  inputs: {
    x: { dtype: FLOATS, shape: "... cols", doc: "rows to multiply" },
    a: matrix("first matrix"),
    b: matrix("second matrix"),
    c: { ...matrix("third matrix"), optional: true },
    d: { ...matrix("fourth matrix"), optional: true },
  },
  outputs: {
    outA: product("a"),
    outB: product("b"),
    outC: { ...product("c"), optional: true, needs: ["c"] },
    outD: { ...product("d"), optional: true, needs: ["d"] },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of all products; default that of x" },
    approximate: APPROXIMATE,
  },
  relations(c) {
    planOf(c);
  },
  rules(c) {
    checkJointScales(c, namesOf(c));
  },
  check(c) {
    checkApproximate(c);
    const { m, rows, cols, groupSize } = planOf(c) as Plan;
    checkBlock(c, blockFor({ m, rows: rows.a as number, cols }, groupSize, c.device), cols, c.device);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options, device } = c;
    const { x } = inputs;
    const int8 = options.approximate !== undefined;
    const { m, rows, cols, groupSize } = planOf(c) as Plan;
    const parts = PARTS.flatMap(([name, product]): { q: Quantized; out: Tensor; rows: number }[] => {
      const [q, out] = [inputs[name], outputs[product]];
      return q && out ? [{ q, out, rows: rows[name] as number }] : [];
    });
    const [a, b, c3, d] = parts as [(typeof parts)[0], (typeof parts)[0], ...typeof parts];
    const block = blockFor({ m, rows: a.rows, cols }, groupSize, device);
    if (block.panels || block.rows < m) {
      for (const { q, out } of parts) encodeProduct(encoder, op, { x, q, out, int8 });
      return;
    }
    const [rowsA, rowsB, rowsC, rowsD] = [a.rows, b.rows, c3?.rows ?? 0, d?.rows ?? 0];
    const sizes: Sizes = { m, rows: [rowsA, rowsB, rowsC, rowsD], cols, groupSize, int8 };
    const all = parts.map(({ q }) => q);
    const given = `${x.dtype}_${a.q.scales.dtype}_${a.out.dtype}_b${a.q.bits}`;
    const { variant, oneRow } = oneRowOf(multiQuantizedMatvecKernel, given, sizes, x, all, device);
    encoder.dispatch(multiQuantizedMatvecKernel, {
      op,
      variant,
      buffers: {
        x,
        aWeight: a.q.weight,
        aScales: a.q.scales,
        aBiases: a.q.biases,
        bWeight: b.q.weight,
        bScales: b.q.scales,
        bBiases: b.q.biases,
        cWeight: c3?.q.weight,
        cScales: c3?.q.scales,
        cBiases: c3?.q.biases,
        dWeight: d?.q.weight,
        dScales: d?.q.scales,
        dBiases: d?.q.biases,
        outA: a.out,
        outB: b.out,
        outC: c3?.out,
        outD: d?.out,
      },
      params: { m, rowsA, rowsB, rowsC, rowsD, cols, groupSize },
      sizes: { ...sizes, oneRow },
    });
  },
}) as MultiQuantizedMatmul;
