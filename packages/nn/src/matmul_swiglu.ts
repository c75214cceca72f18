import { type Dtype, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import { encodeProduct, hasFewRows } from "./matmul.ts";
import { columnsOnCpu, columnsOnGpu, FEW_ROWS, fewRowsOnGpu, PRODUCT_VARIANTS, paddedRow } from "./product_launch.ts";
import type { MatmulSwiglu } from "./signatures.ts";
import { encodeGated } from "./swiglu.ts";

/** Columns of which a CPU's thread keeps products: enough that both weights are read in long streams. */
export const UP_COLUMNS = 1024;

type Sizes = Record<"m" | "n" | "k", number>;

/** Both products and their gated unit for few rows of x; a threadgroup is `groupColumns` outputs. */
export const matvecSwigluKernel = defineKernel({
  library: nnLibrary,
  name: "matvec_swiglu",
  variants: PRODUCT_VARIANTS,
  buffers: { x: "read", gate: "read", up: "read", out: "write" },
  params: { m: "u32", n: "u32", k: "u32" },
  launchParams: { cpu: { groupColumns: "u32", upColumns: "u32", width: "u32" }, gpu: { groupColumns: "u32" } },
  constants: FEW_ROWS,
  // On a CPU `ups` are products of `upColumns` columns at a time in the dtype of out.
  scratch: { cpu: { x: "f32", ups: "f32" }, gpu: { partial: "f32" } },
  launch: {
    cpu: ({ m, n, k }: Sizes) => {
      const groupColumns = columnsOnCpu(k);
      const upColumns = Math.min(n, UP_COLUMNS);
      const width = paddedRow(k);
      return {
        threadgroups: [Math.ceil(n / groupColumns), 1, 1],
        params: { groupColumns, upColumns, width },
        scratch: { x: [m, width], ups: [m, upColumns] },
      };
    },
    gpu: ({ n, k }, { constants }) => {
      const groupColumns = columnsOnGpu(n, k, constants);
      const { scratch, ...launch } = fewRowsOnGpu(constants);
      return {
        threadgroups: [Math.ceil(n / groupColumns), 1, 1],
        params: { groupColumns },
        ...launch,
        scratch: { partial: [2, ...scratch.partial] },
      };
    },
  },
});

/**
 * The first half of a gated feed-forward layer: `out = silu(x · gateᵀ) · (x · upᵀ)`, silu(z) = z · σ(z).
 *
 * - `x` [.., cols]; `gate`, `up` [rows, cols] of one dtype, whatever x has; `out` [.., rows]. f32, f16 or bf16.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * Both products are rounded to the dtype of out before they meet: the bits of two calls of `matmul` and one of `swiglu`.
 * Up to 8 rows of x take one dispatch. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Shazeer, "GLU Variants Improve Transformer", 2020.
 */
export const matmulSwiglu: MatmulSwiglu = defineOp({
  name: "matmulSwiglu",
  summary: "silu(x · gateᵀ) · (x · upᵀ)",
  inputs: {
    x: { dtype: FLOATS, shape: "... cols", doc: "rows to multiply" },
    gate: { dtype: FLOATS, shape: "rows cols", doc: "the matrix whose products are gated" },
    up: { dtype: ["=gate"], shape: "rows cols", doc: "the matrix whose products gate them" },
  },
  outputs: {
    out: {
      dtype: (c) => (c.options.outDtype ?? (c.tensors.x as Tensor).dtype) as Dtype,
      shape: {
        text: "..., rows",
        of: ({ tensors }) => [...(tensors.x as Tensor).shape.slice(0, -1), tensors.gate?.shape[0] as number],
      },
      doc: "the gated products",
    },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "default: the dtype of x" },
  },
  encode({ encoder, op, inputs: { x, gate, up }, outputs: { out } }) {
    const k = x.lastDim;
    const m = x.size / k;
    const n = out.lastDim;
    if (hasFewRows(m, k, encoder.device)) {
      encoder.dispatch(matvecSwigluKernel, {
        op,
        variant: `${x.dtype}_${gate.dtype}_${out.dtype}`,
        buffers: { x, gate, up, out },
        params: { m, n, k },
        sizes: { m, n, k },
      });
      return;
    }
    const weights = { gate, up };
    encodeGated(encoder, op, out, (input, product) =>
      encodeProduct(encoder, op, { x, weight: weights[input], out: product }, true),
    );
  },
});
