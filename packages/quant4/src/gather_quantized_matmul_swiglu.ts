import {
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  GATHERED_FAULTS,
  gatheredInputs,
  gatheredProducts,
  QUANTIZED,
  scratchFits,
  type Tensor,
} from "@mlxts/core";
import { encodeGated } from "./gate_products.ts";
import { encodeGathered, launchOf, PARAMS, type PairSizes, type Products } from "./gather_quantized_matmul.ts";
import { quant4Library } from "./library.ts";
import {
  APPROXIMATE,
  ceil,
  checkBlock,
  checkJointScales,
  FEW,
  FEW_ON_CPU,
  FEW_SCRATCH_ON_GPU,
  FEW_VARIANTS,
  fewOnGpus,
  jointDims,
  MATVEC_PARAMS,
  MATVEC_SCRATCH,
  matvecOnCpu,
  oneRowOf,
  type Seen,
} from "./product_launch.ts";
import { checkApproximate } from "./quantized_matmul.ts";
import type { GatherQuantizedMatmulSwiglu } from "./signatures.ts";

/** Rows of each matrix of which a CPU's thread keeps products: enough that both are read in long streams. */
const KEPT_ROWS = 256;

/**
 * Each pair by itself: `mBlock` rows of x at a time against both matrices that it has chosen, and their gated unit; on a CPU,
 * `gates` and `ups` are products with `keptRows` rows at a time in the dtype of out.
 */
export const gatherQuantizedMatvecSwigluKernel = defineKernel({
  library: quant4Library,
  name: "gather_quantized_matvec_swiglu",
  variants: FEW_VARIANTS,
  buffers: {
    x: "read",
    gateWeight: "read",
    gateScales: "read",
    gateBiases: "read",
    upWeight: "read",
    upScales: "read",
    upBiases: "read",
    rhsIndices: "read",
    lhsIndices: "read?",
    out: "write",
  },
  anyByte: ["gateWeight", "gateScales", "gateBiases", "upWeight", "upScales", "upBiases"],
  params: PARAMS,
  launchParams: { cpu: { mBlock: "u32", keptRows: "u32", ...MATVEC_PARAMS } },
  faults: GATHERED_FAULTS,
  scratch: { cpu: { ...MATVEC_SCRATCH, gates: "f32", ups: "f32" }, gpu: FEW_SCRATCH_ON_GPU },
  launch: {
    cpu: ({ pairs, m, rows, mBlock, ...weights }: PairSizes & { mBlock: number }) => {
      const { blockRows } = FEW_ON_CPU;
      const { params, scratch } = matvecOnCpu(mBlock, weights);
      const keptRows = Math.min(ceil(rows, blockRows) * blockRows, KEPT_ROWS);
      return {
        threadgroups: [ceil(rows, blockRows), ceil(m, mBlock), pairs],
        params: { ...params, mBlock, keptRows },
        scratch: { ...scratch, gates: [mBlock, keptRows], ups: [mBlock, keptRows] },
      };
    },
    ...fewOnGpus(({ pairs, m, rows }: PairSizes, groupRows) => [ceil(rows, groupRows), ceil(m, FEW.mostM), pairs], 2),
  },
});

const STACKS = ["gate", "up"] as const;

/** What a call multiplies with each stack; undefined where the check of the options says next what is wrong. */
function productsOf(c: Seen): Products | undefined {
  const [gate, up] = jointDims(c, STACKS, true) ?? [];
  if (!gate || !up) return undefined;
  const { rows, cols, groupSize, bits } = gate;
  const matrices = gate.stack[0] as number;
  const given = (c.tensors["up.weight"] as Tensor).shape;
  if (up.stack[0] !== matrices) c.fail("up.weight", `have ${matrices} matrices, as \`gate\` has`, given);
  if (up.rows !== rows) c.fail("up.weight", `have ${rows} rows, as \`gate\` has`, given);
  const int8 = c.options.approximate !== undefined;
  const gathered = gatheredProducts(c, matrices);
  return { ...gathered, matrices, rows, cols, groupSize, bits, int8 };
}

/**
 * The first half of blocks of experts: for each pair `out[p] = silu(x[p] · gate[rhsIndices[p]]ᵀ) · (x[p] · up[rhsIndices[p]]ᵀ)`,
 * silu(z) = z · σ(z).
 *
 * - `x` [.., M, cols] f32, f16 or bf16; `gate` and `up` `Quantized` [E, rows, cols] with bits 4 or 8: both have the same bits
 *   and group size, and scales of one dtype. `out` [.., M, rows], in the order of the pairs.
 * - `rhsIndices`, `lhsIndices`, `order` and `offsets` as in `gatherQuantizedMatmul`.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 * - `approximate` as in `quantizedMatmul`; default: exact.
 *
 * Both products are rounded to the dtype of out before they meet: the bits of two calls of `gatherQuantizedMatmul` and one of
 * `swiglu`. Without an order, up to 8 rows to a matrix of x take one dispatch. Errors: as of `gatherQuantizedMatmul`, and
 * `InvalidArgument` for stacks that differ.
 */
export const gatherQuantizedMatmulSwiglu: GatherQuantizedMatmulSwiglu = defineOp({
  name: "gatherQuantizedMatmulSwiglu",
  summary: "silu(x · gate[rhsIndices]ᵀ) · (x · up[rhsIndices]ᵀ), gate and up = scale·q + bias",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: { text: "..., M, cols", of: ({ tensors }) => (tensors.x as Tensor).shape },
      doc: "matrices to multiply",
    },
    gate: { ...QUANTIZED, doc: "the stack whose products are gated" },
    up: { ...QUANTIZED, doc: "the stack whose products gate them" },
    ...gatheredInputs((c) => productsOf(c) as Products),
  },
  outputs: {
    out: {
      dtype: ({ options, tensors }) => (options.outDtype ?? tensors.x?.dtype) as Dtype,
      shape: {
        text: "..., k, M, rows",
        of: (c) => {
          const { lead, m, rows } = productsOf(c) as Products;
          return [...lead, m, rows];
        },
      },
      doc: "the gated products of each pair",
    },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of x" },
    approximate: APPROXIMATE,
  },
  relations(c) {
    productsOf(c);
  },
  rules(c) {
    checkJointScales(c, STACKS);
  },
  check(c) {
    checkApproximate(c);
    const products = productsOf(c) as Products;
    const { device, inputs } = c;
    checkBlock(c, launchOf(products, inputs.order !== undefined, device).block, products.cols, device);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, device } = c;
    const { x, gate, up, rhsIndices, lhsIndices, order, offsets } = inputs;
    const { out } = outputs;
    const products = productsOf(c) as Products;
    const { block, sizes } = launchOf(products, order !== undefined, device);
    if (block.panels || !scratchFits(gatherQuantizedMatvecSwigluKernel, sizes, device)) {
      const indices = { rhsIndices, lhsIndices, order, offsets };
      encodeGated(encoder, op, out, (input, product) =>
        encodeGathered(encoder, op, { x, q: inputs[input], ...indices, out: product }, products),
      );
      return;
    }
    const { rows, cols, groupSize, bits, params } = products;
    const given = `${x.dtype}_${gate.scales.dtype}_${out.dtype}_b${bits}`;
    const { variant, oneRow } = oneRowOf(gatherQuantizedMatvecSwigluKernel, given, sizes, x, [gate, up], device);
    encoder.dispatch(gatherQuantizedMatvecSwigluKernel, {
      op,
      variant,
      buffers: {
        x,
        gateWeight: gate.weight,
        gateScales: gate.scales,
        gateBiases: gate.biases,
        upWeight: up.weight,
        upScales: up.scales,
        upBiases: up.biases,
        rhsIndices,
        lhsIndices,
        out,
      },
      params: { ...params, rows, cols, groupSize },
      sizes: { ...sizes, oneRow },
    });
  },
});
