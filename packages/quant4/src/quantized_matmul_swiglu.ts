import {
  type Device,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  QUANTIZED,
  scratchFits,
  type Tensor,
} from "@mlxts/core";
import { encodeGated } from "./gate_products.ts";
import { quant4Library } from "./library.ts";
import {
  APPROXIMATE,
  ceil,
  checkBlock,
  checkJointScales,
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
  type Weights,
} from "./product_launch.ts";
import { blockFor, checkApproximate, encodeProduct } from "./quantized_matmul.ts";
import type { QuantizedMatmulSwiglu } from "./signatures.ts";

interface Sizes extends Weights {
  m: number;
  rows: number;
}

/** Both products and their gated unit for few rows of x; on a CPU, `gates` and `ups` are the products in the dtype of out. */
export const quantizedMatvecSwigluKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matvec_swiglu",
  variants: FEW_VARIANTS,
  buffers: {
    x: "read",
    gateWeight: "read",
    gateScales: "read",
    gateBiases: "read",
    upWeight: "read",
    upScales: "read",
    upBiases: "read",
    out: "write",
  },
  early: ["gateWeight", "gateScales", "gateBiases", "upWeight", "upScales", "upBiases"],
  params: { m: "u32", rows: "u32", cols: "u32", groupSize: "u32" },
  launchParams: { cpu: MATVEC_PARAMS },
  // A CPU goes through runBlocks threadgroups of gate, then through those of up.
  constants: { cpu: { runBlocks: 64 } },
  scratch: { cpu: { ...MATVEC_SCRATCH, gates: "f32", ups: "f32" }, gpu: FEW_SCRATCH_ON_GPU },
  launch: {
    cpu: ({ m, rows, ...weights }: Sizes, { constants: { runBlocks } }) => {
      const { blockRows } = FEW_ON_CPU;
      const { params, scratch } = matvecOnCpu(m, weights);
      return {
        threadgroups: [ceil(rows, blockRows), 1, 1],
        params,
        scratch: { ...scratch, gates: [m, runBlocks * blockRows], ups: [m, runBlocks * blockRows] },
      };
    },
    ...fewOnGpus(({ rows }: Sizes, groupRows) => [ceil(rows, groupRows), 1, 1], 2),
  },
});

const MATRICES = ["gate", "up"] as const;

interface Plan extends Sizes {
  shape: readonly number[];
}

function planOf(c: Seen): Plan | undefined {
  const [gate, up] = jointDims(c, MATRICES) ?? [];
  if (!gate || !up) return undefined;
  const { rows, cols, groupSize } = gate;
  if (up.rows !== rows) c.fail("up.weight", `have ${rows} rows, as \`gate\` has`, up.rows);
  const { shape, size } = c.tensors.x as Tensor;
  return { m: size / cols, rows, cols, groupSize, shape: [...shape.slice(0, -1), rows] };
}

/** Whether x has so few rows that one dispatch does all. */
function isOneDispatch(sizes: Sizes, device: Device): boolean {
  const { panels, rows } = blockFor(sizes, sizes.groupSize, device);
  return !panels && rows >= sizes.m && scratchFits(quantizedMatvecSwigluKernel, sizes, device);
}

/**
 * The first half of a gated feed-forward layer with quantized matrices: `out = silu(x · gateᵀ) · (x · upᵀ)`,
 * silu(z) = z · σ(z).
 *
 * - `x` [.., cols], f32, f16 or bf16; `gate` and `up` `Quantized` [rows, cols] with bits 4 or 8: both have the same bits and
 *   group size, and scales of one dtype. `out` [.., rows].
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 * - `approximate` as in `quantizedMatmul`; default: exact.
 *
 * Both products are rounded to the dtype of out before they meet: the bits of two calls of `quantizedMatmul` and one of
 * `swiglu`. Up to 8 rows of x take one dispatch. Errors: as of `quantizedMatmul`, and `InvalidArgument` for matrices that
 * differ or are stacks.
 */
export const quantizedMatmulSwiglu: QuantizedMatmulSwiglu = defineOp({
  name: "quantizedMatmulSwiglu",
  summary: "silu(x · gateᵀ) · (x · upᵀ), gate and up = scale·q + bias",
  inputs: {
    x: { dtype: FLOATS, shape: "... cols", doc: "rows to multiply" },
    gate: { ...QUANTIZED, doc: "the matrix whose products are gated" },
    up: { ...QUANTIZED, doc: "the matrix whose products gate them" },
  },
  outputs: {
    out: {
      dtype: (c) => (c.options.outDtype ?? c.tensors.x?.dtype) as Dtype,
      shape: { text: "..., rows", of: (c) => (planOf(c) as Plan).shape },
      doc: "the gated products",
    },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of x" },
    approximate: APPROXIMATE,
  },
  relations(c) {
    planOf(c);
  },
  rules(c) {
    checkJointScales(c, MATRICES);
  },
  check(c) {
    checkApproximate(c);
    const plan = planOf(c) as Plan;
    checkBlock(c, blockFor(plan, plan.groupSize, c.device), plan.cols, c.device);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    const { x, gate, up } = inputs;
    const { out } = outputs;
    const { m, rows, cols, groupSize } = planOf(c) as Plan;
    const params = { m, rows, cols, groupSize };
    const sizes = { ...params, int8: options.approximate !== undefined };
    if (!isOneDispatch(sizes, c.device)) {
      encodeGated(encoder, op, out, (input, product) =>
        encodeProduct(encoder, op, { x, q: inputs[input], out: product, int8: sizes.int8 }),
      );
      return;
    }
    const given = `${x.dtype}_${gate.scales.dtype}_${out.dtype}_b${gate.bits}`;
    const { variant, oneRow } = oneRowOf(quantizedMatvecSwigluKernel, given, sizes, x, [gate, up], c.device);
    encoder.dispatch(quantizedMatvecSwigluKernel, {
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
        out,
      },
      params,
      sizes: { ...sizes, oneRow },
    });
  },
});
