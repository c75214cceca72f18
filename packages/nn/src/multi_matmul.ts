import { type Dtype, defineKernel, defineOp, FLOATS, type OpContext, type Tensor } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import { encodeProduct, hasFewRows } from "./matmul.ts";
import { columnsOnCpu, columnsOnGpu, FEW_ROWS, fewRowsOnGpu, PRODUCT_VARIANTS, paddedRow } from "./product_launch.ts";
import type { MultiMatmul } from "./signatures.ts";

/** The matrices of a call by their names, and the products that belong to them. */
const PARTS = [
  ["a", "outA"],
  ["b", "outB"],
  ["c", "outC"],
  ["d", "outD"],
] as const;

interface Sizes {
  m: number;
  k: number;
  /** Columns of each product; 0 for one that is not there. */
  columns: readonly [number, number, number, number];
}

const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

/** Products of few rows of x with up to four matrices: the threadgroups of one matrix come after those of the one before. */
export const multiMatvecKernel = defineKernel({
  library: nnLibrary,
  name: "multi_matvec",
  variants: PRODUCT_VARIANTS,
  buffers: {
    x: "read",
    a: "read",
    b: "read",
    c: "read?",
    d: "read?",
    outA: "write",
    outB: "write",
    outC: "write?",
    outD: "write?",
  },
  params: { m: "u32", k: "u32", nA: "u32", nB: "u32", nC: "u32", nD: "u32" },
  launchParams: {
    cpu: { groupColumns: "u32", width: "u32" },
    gpu: { columnsA: "u32", columnsB: "u32", columnsC: "u32", columnsD: "u32" },
  },
  constants: FEW_ROWS,
  scratch: { cpu: { x: "f32" }, gpu: { partial: "f32" } },
  mostThreads: 128,
  launch: {
    cpu: ({ m, k, columns }: Sizes) => {
      const groupColumns = columnsOnCpu(k);
      const width = paddedRow(k);
      return {
        threadgroups: [sum(columns.map((n) => Math.ceil(n / groupColumns))), 1, 1],
        params: { groupColumns, width },
        scratch: { x: [m, width] },
      };
    },
    gpu: ({ k, columns }, { constants }) => {
      const group = columns.map((n) => columnsOnGpu(n, k, constants)) as [number, number, number, number];
      const [columnsA, columnsB, columnsC, columnsD] = group;
      return {
        threadgroups: [sum(columns.map((n, i) => Math.ceil(n / (group[i] as number)))), 1, 1],
        params: { columnsA, columnsB, columnsC, columnsD },
        ...fewRowsOnGpu(constants),
      };
    },
  },
});

const weight = (rows: string) =>
  ({ dtype: ["=a"], shape: `${rows} cols`, doc: "another matrix, of any number of rows" }) as const;
const product = (name: "a" | "b" | "c" | "d") =>
  ({
    dtype: (c: OpContext) => (c.options.outDtype ?? (c.tensors.x as Tensor).dtype) as Dtype,
    shape: {
      text: `..., rows${name.toUpperCase()}`,
      of: (c: OpContext) => [...(c.tensors.x as Tensor).shape.slice(0, -1), c.tensors[name]?.shape[0] ?? 0],
    },
    doc: `x · ${name}ᵀ`,
  }) as const;

/**
 * Products of one x with two to four matrices: `outA = x · aᵀ`, `outB = x · bᵀ` and so on. Queries, keys and values of
 * attention, in one dispatch.
 *
 * - `x` [.., cols]; `a` [rowsA, cols], `b` [rowsB, cols], `c` and `d` optional: f32, f16 or bf16, all matrices of one dtype.
 *   `outA` [.., rowsA] and so on. `c` and `d` are multiplied where `outC` and `outD` are asked for.
 * - `outDtype` f32, f16 or bf16 of all products; default the dtype of x.
 *
 * Each product has the bits of `matmul`. Up to 8 rows of x take one dispatch, more one for each matrix. Errors:
 * `InvalidArgument` for shapes, dtypes, options and overlap, and for a product that is asked for without its matrix.
 */
export const multiMatmul = defineOp({
  name: "multiMatmul",
  summary: "x · aᵀ, x · bᵀ, x · cᵀ, x · dᵀ",
  inputs: {
    x: { dtype: FLOATS, shape: "... cols", doc: "rows to multiply" },
    a: { dtype: FLOATS, shape: "rowsA cols", doc: "first matrix" },
    b: weight("rowsB"),
    c: { ...weight("rowsC"), optional: true },
    d: { ...weight("rowsD"), optional: true },
  },
  outputs: {
    outA: product("a"),
    outB: product("b"),
    outC: { ...product("c"), optional: true, needs: ["c"] },
    outD: { ...product("d"), optional: true, needs: ["d"] },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "default: the dtype of x" },
  },
  encode({ encoder, op, inputs, outputs }) {
    const { x, a } = inputs;
    const { outA } = outputs;
    const k = x.lastDim;
    const m = x.size / k;
    if (!hasFewRows(m, k, encoder.device)) {
      for (const [name, out] of PARTS) {
        const [weight, product] = [inputs[name], outputs[out]];
        if (weight && product) encodeProduct(encoder, op, { x, weight, out: product }, true);
      }
      return;
    }
    const columns = PARTS.map(([, out]) => outputs[out]?.lastDim ?? 0) as unknown as Sizes["columns"];
    const [nA, nB, nC, nD] = columns;
    encoder.dispatch(multiMatvecKernel, {
      op,
      variant: `${x.dtype}_${a.dtype}_${outA.dtype}`,
      buffers: { x, a, b: inputs.b, c: inputs.c, d: inputs.d, ...outputs },
      params: { m, k, nA, nB, nC, nD },
      sizes: { m, k, columns },
    });
  },
}) as MultiMatmul;
