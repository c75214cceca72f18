import {
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  GATHERED_FAULTS,
  GATHERED_PARAMS,
  gatheredInputs,
  type OpContext,
  type Tensor,
} from "@mlxts/core";
import {
  checkSpan,
  encodeGathered,
  hasFewRowsEach,
  type PairSizes,
  productsWith,
  type Seen,
  startEndOf,
  startsFault,
} from "./gather_matmul.ts";
import { nnLibrary } from "./library.ts";
import { UP_COLUMNS } from "./matmul_swiglu.ts";
import { columnsOnCpu, columnsOnGpu, FEW_ROWS, fewRowsOnGpu, PRODUCT_VARIANTS, paddedRow } from "./product_launch.ts";
import type { GatherMatmulSwiglu } from "./signatures.ts";
import { encodeGated } from "./swiglu.ts";

/** Each pair by itself: its few rows of x with both matrices that it has chosen, and the gated unit of the products. */
export const gatherMatvecSwigluKernel = defineKernel({
  library: nnLibrary,
  name: "gather_matvec_swiglu",
  variants: PRODUCT_VARIANTS,
  buffers: {
    x: "read",
    gate: "read",
    up: "read",
    rhsIndices: "read",
    lhsIndices: "read?",
    gateStarts: "read?",
    upStarts: "read?",
    out: "write",
  },
  // Matrices of weights of one dimension begin below `gateEnd` and `upEnd`.
  params: { ...GATHERED_PARAMS, n: "u32", k: "u32", gateEnd: "u32", upEnd: "u32" },
  faults: {
    ...GATHERED_FAULTS,
    gateStarts: startsFault("gateStarts", "gateEnd"),
    upStarts: startsFault("upStarts", "upEnd"),
  },
  launchParams: { cpu: { groupColumns: "u32", upColumns: "u32", width: "u32" }, gpu: { groupColumns: "u32" } },
  constants: FEW_ROWS,
  // On a CPU `ups` are products of `upColumns` columns at a time in the dtype of out. held: whether the weights hold the
  // matrices.
  scratch: { cpu: { x: "f32", ups: "f32" }, gpu: { partial: "f32", held: "u32" } },
  launch: {
    cpu: ({ pairs, m, n, k }: PairSizes) => {
      const groupColumns = columnsOnCpu(k);
      const upColumns = Math.min(n, UP_COLUMNS);
      const width = paddedRow(k);
      return {
        threadgroups: [Math.ceil(n / groupColumns), pairs, 1],
        params: { groupColumns, upColumns, width },
        scratch: { x: [m, width], ups: [m, upColumns] },
      };
    },
    gpu: ({ pairs, n, k }, { constants }) => {
      const groupColumns = columnsOnGpu(n * pairs, k, constants);
      const { scratch, ...threads } = fewRowsOnGpu(constants);
      return {
        threadgroups: [Math.ceil(n / groupColumns), pairs, 1],
        params: { groupColumns },
        ...threads,
        scratch: { partial: [2, ...scratch.partial], held: [1] },
      };
    },
  },
});

/** What a call multiplies with each of the two stacks. */
function productsOf(c: Seen) {
  const { gateStarts, upStarts } = c.tensors;
  if (gateStarts && !upStarts) c.fail("upStarts", "be given with `gateStarts`", undefined);
  if (upStarts && !gateStarts) c.fail("gateStarts", "be given with `upStarts`", undefined);
  return productsWith(c, "gate", "gateStarts");
}

/** The shape of a stack: any one dimension with starts. */
const stackShape = (name: "gate" | "up") => ({
  text: "E, rows, cols; with starts: span",
  of: (c: OpContext) => {
    const { [name]: stack, gate, gateStarts } = c.tensors as Record<string, Tensor>;
    return (gateStarts && stack?.shape.length === 1 ? stack : (gate as Tensor)).shape;
  },
});
const STARTS = {
  dtype: ["u32"],
  shape: "E",
  optional: true,
  doc: "where each matrix begins in a stack of one dimension, as in `gatherMatmul`",
} as const;

/**
 * The first half of blocks of experts: for each pair `out[p] = silu(x[p] · gate[rhsIndices[p]]ᵀ) · (x[p] · up[rhsIndices[p]]ᵀ)`,
 * silu(z) = z · σ(z).
 *
 * - `x` [.., M, cols]; `gate`, `up` [E, rows, cols] of one dtype, whatever x has; `out` [.., M, rows], in the order of the
 *   pairs. f32, f16 or bf16.
 * - `rhsIndices`, `lhsIndices`, `order` and `offsets` as in `gatherMatmul`.
 * - `gateStarts`, `upStarts` u32 [E], both or neither, and `rows`: as `starts` of `gatherMatmul`, for stacks of one dimension.
 *   What a pair gives is not defined where a matrix is `ELSEWHERE`.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * Both products are rounded to the dtype of out before they meet: the bits of two calls of `gatherMatmul` and one of `swiglu`.
 * Without an order, up to 8 rows to a matrix of x take one dispatch. Errors: as of `gatherMatmul`.
 */
export const gatherMatmulSwiglu: GatherMatmulSwiglu = defineOp({
  name: "gatherMatmulSwiglu",
  summary: "silu(x · gate[rhsIndices]ᵀ) · (x · up[rhsIndices]ᵀ)",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: {
        text: "..., M, cols",
        of: ({ tensors }) => {
          const { x, gate } = tensors as { x: Tensor; gate: Tensor };
          return gate.shape.length === 3 ? [...x.shape.slice(0, -1), gate.lastDim] : x.shape;
        },
      },
      doc: "matrices to multiply",
    },
    gate: { dtype: FLOATS, shape: stackShape("gate"), doc: "the stack whose products are gated" },
    up: { dtype: ["=gate"], shape: stackShape("up"), doc: "the stack whose products gate them" },
    ...gatheredInputs(productsOf),
    gateStarts: STARTS,
    upStarts: STARTS,
  },
  outputs: {
    out: {
      dtype: (c) => (c.options.outDtype ?? (c.tensors.x as Tensor).dtype) as Dtype,
      shape: {
        text: "..., k, M, rows",
        of: (c) => {
          const { lead, m, rows } = productsOf(c);
          return [...lead, m, rows];
        },
      },
      doc: "the gated products of each pair",
    },
  },
  params: {
    rows: { kind: "number", integer: true, min: 1, optional: true, doc: "rows of a matrix; needed with starts" },
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "default: the dtype of x" },
  },
  relations(c) {
    productsOf(c);
  },
  rules(c) {
    const { rows, cols } = productsOf(c);
    const { gate, up, gateStarts } = c.inputs;
    if (!gateStarts) return;
    checkSpan(c.fail, "gate", gate, rows * cols);
    checkSpan(c.fail, "up", up, rows * cols);
  },
  encode(c) {
    const { encoder, op, inputs, outputs } = c;
    const { x, gate, up, rhsIndices, lhsIndices, gateStarts, upStarts, order, offsets } = inputs;
    const { out } = outputs;
    const products = productsOf(c);
    const { params, pairs, m, rows: n, cols: k } = products;
    if (hasFewRowsEach(m, k, order !== undefined, encoder.device)) {
      encoder.dispatch(gatherMatvecSwigluKernel, {
        op,
        variant: `${x.dtype}_${gate.dtype}_${out.dtype}`,
        buffers: { x, gate, up, rhsIndices, lhsIndices, gateStarts, upStarts, out },
        params: {
          ...params,
          m,
          n,
          k,
          gateEnd: startEndOf(gate, gateStarts, n * k),
          upEnd: startEndOf(up, upStarts, n * k),
        },
        sizes: { pairs, m, n, k },
      });
      return;
    }
    const indices = { rhsIndices, lhsIndices, order, offsets };
    const stacks = { gate: { weight: gate, starts: gateStarts }, up: { weight: up, starts: upStarts } };
    encodeGated(encoder, op, out, (input, product) =>
      encodeGathered(encoder, op, { x, ...stacks[input], ...indices, out: product }, products, {
        starts: `${input}Starts`,
      }),
    );
  },
});
