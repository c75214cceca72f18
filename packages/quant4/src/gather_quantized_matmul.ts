import {
  type CommandEncoder,
  type Device,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  GATHERED_FAULTS,
  GATHERED_PARAMS,
  type GatheredSizes,
  gatheredInputs,
  gatheredProducts,
  gatheredSlots,
  ORDERED_FAULTS,
  QUANTIZED,
  quantizedDims,
  scratchFits,
  type Tensor,
} from "@mlxts/core";
import { quant4Library } from "./library.ts";
import {
  APPROXIMATE,
  blockOf,
  CUDA_TILES,
  ceil,
  checkBlock,
  FEW,
  FEW_ON_CPU,
  FEW_SCRATCH_ON_GPU,
  FEW_VARIANTS,
  fewOnGpus,
  GATHERED_VARIANTS,
  gatheredTileFor,
  MATVEC_PARAMS,
  MATVEC_SCRATCH,
  matvecOnCpu,
  oneRowOf,
  PANEL_SCRATCH,
  PANELS,
  PRODUCT_BITS,
  PRODUCT_VARIANTS,
  panelBlock,
  panelsOnCpu,
  type Seen,
  TILE_SCRATCH,
  TILES,
  tilesOnCuda,
  tilesOnGpu,
  type WarpgroupTile,
  type Weights,
  warpgroupsOnCuda,
} from "./product_launch.ts";
import { checkApproximate } from "./quantized_matmul.ts";
import type { GatherQuantizedMatmul, Quantized } from "./signatures.ts";

const BUFFERS = {
  x: "read",
  weight: "read",
  scales: "read",
  biases: "read",
  rhsIndices: "read",
  lhsIndices: "read?",
} as const;
/** Codes, scales and biases are read where they lie in a file, aligned or not. */
const ANY_BYTE = ["weight", "scales", "biases"] as const;
export const PARAMS = { ...GATHERED_PARAMS, rows: "u32", cols: "u32", groupSize: "u32" } as const;

export interface PairSizes extends Weights, Pick<GatheredSizes, "pairs" | "m"> {
  rows: number;
}

/** Each pair by itself: `mBlock` rows of x at a time against the matrix that it has chosen. */
export const gatherQuantizedMatvecKernel = defineKernel({
  library: quant4Library,
  name: "gather_quantized_matvec",
  variants: FEW_VARIANTS,
  buffers: { ...BUFFERS, out: "write" },
  anyByte: ANY_BYTE,
  params: PARAMS,
  launchParams: { cpu: { mBlock: "u32", ...MATVEC_PARAMS } },
  faults: GATHERED_FAULTS,
  scratch: { cpu: MATVEC_SCRATCH, gpu: FEW_SCRATCH_ON_GPU },
  launch: {
    cpu: ({ pairs, m, rows, mBlock, ...weights }: PairSizes & { mBlock: number }) => {
      const { params, scratch } = matvecOnCpu(mBlock, weights);
      return {
        threadgroups: [ceil(rows, FEW_ON_CPU.blockRows), ceil(m, mBlock), pairs],
        params: { ...params, mBlock },
        scratch,
      };
    },
    ...fewOnGpus(({ pairs, m, rows }: PairSizes, groupRows) => [ceil(rows, groupRows), ceil(m, FEW.mostM), pairs]),
  },
});

interface SlotSizes extends PairSizes, GatheredSizes {
  mBlock: number;
  /** Where warpgroups multiply. */
  tile?: WarpgroupTile | undefined;
}

/** Scratch for the rows of a slot. */
const slotOf = (tileM: number) => ({ xRows: [tileM], outRows: [tileM], slot: [3] });

/** Tiles of quantized_matmul's geometry, with the rows of a slot. */
const gatheredTiles = <Scratch extends object>(
  sizes: SlotSizes,
  { threads, tileM, tileRows }: typeof TILES,
  scratch: Scratch,
) => ({
  threadgroups: [ceil(sizes.rows, tileRows), gatheredSlots(sizes, tileM), 1] as const,
  threadsPerThreadgroup: [threads, 1, 1] as const,
  scratch: { ...scratch, ...slotOf(tileM) },
});

function gatheredWarpgroups(sizes: SlotSizes, tile: WarpgroupTile) {
  const { threadgroups, scratch, ...rest } = warpgroupsOnCuda({ m: tile.m, rows: sizes.rows, batch: 1 }, tile);
  return {
    ...rest,
    threadgroups: [threadgroups[0], gatheredSlots(sizes, tile.m), 1] as const,
    scratch: { ...scratch, ...slotOf(tile.m) },
  };
}
const ON_CUDA = { ...TILES, ...CUDA_TILES };

/** The pairs of each matrix as one product, or pairs with many rows of x each. */
export const gatherQuantizedMatmulKernel = defineKernel({
  library: quant4Library,
  name: "gather_quantized_matmul",
  variants: [...PRODUCT_VARIANTS, ...GATHERED_VARIANTS],
  sm90a: GATHERED_VARIANTS,
  buffers: { ...BUFFERS, order: "read?", offsets: "read?", out: "write" },
  anyByte: ANY_BYTE,
  params: PARAMS,
  launchParams: { cpu: { mBlock: "u32", ...MATVEC_PARAMS, blocks: "u32" } },
  faults: ORDERED_FAULTS,
  // xRows and outRows: the rows of a slot. On a CPU few, of a slot with few rows: see MATVEC_SCRATCH. On a GPU slot: its
  // matrix, and how many rows it has.
  scratch: {
    cpu: {
      ...PANEL_SCRATCH,
      fewOrdered: "u16",
      fewSums: "f32",
      xRows: "u32",
      outRows: "u32",
    },
    gpu: { ...TILE_SCRATCH, xRows: "u32", outRows: "u32", slot: "u32" },
  },
  launch: {
    cpu: (sizes: SlotSizes) => {
      const { rows, mBlock, cols, groupSize, int8 = false } = sizes;
      const few = matvecOnCpu(Math.min(mBlock, FEW.mostM), { cols, groupSize, int8 });
      const panels = panelsOnCpu(mBlock, { cols, groupSize, int8 });
      return {
        threadgroups: [ceil(rows, PANELS.blockRows), gatheredSlots(sizes, mBlock), 1],
        params: { ...few.params, ...panels.params },
        scratch: {
          ...panels.scratch,
          fewOrdered: few.scratch.ordered,
          fewSums: few.scratch.sums,
          xRows: [mBlock],
          outRows: [mBlock],
        },
      };
    },
    gpu: (sizes) => gatheredTiles(sizes, TILES, tilesOnGpu(TILES)),
    cuda: (sizes) =>
      typeof sizes.tile === "object"
        ? gatheredWarpgroups(sizes, sizes.tile)
        : gatheredTiles(sizes, ON_CUDA, tilesOnCuda(ON_CUDA)),
  },
});

/** The tensors of a gathered product. */
export interface GatheredTensors extends Record<"x" | "rhsIndices" | "out", Tensor> {
  q: Quantized;
  lhsIndices?: Tensor | undefined;
  order?: Tensor | undefined;
  offsets?: Tensor | undefined;
}

/** The products of all pairs, as gatherQuantizedMatmul does them. */
export function encodeGathered(
  encoder: CommandEncoder,
  op: string,
  { x, q, rhsIndices, lhsIndices, order, offsets, out }: GatheredTensors,
  products: Products,
): void {
  const { rows, cols, groupSize, bits, params } = products;
  const { block, sizes } = launchOf(products, order !== undefined, encoder.device);
  const variant = `${x.dtype}_${q.scales.dtype}_${out.dtype}_b${bits}`;
  const { weight, scales, biases } = q;
  const buffers = { x, weight, scales, biases, rhsIndices, lhsIndices, out };
  const given = { op, variant, params: { ...params, rows, cols, groupSize }, sizes };
  const { device } = encoder;
  if (block.panels) {
    const has = (wanted: string) => device.library(quant4Library).has(gatherQuantizedMatmulKernel.name, wanted);
    const { tile, ...rest } = gatheredTileFor(variant, sizes, { x, ...q }, has) ?? {};
    encoder.dispatch(gatherQuantizedMatmulKernel, {
      ...given,
      ...rest,
      buffers: { ...buffers, order, offsets },
      sizes: { ...sizes, tile },
    });
  } else {
    const { oneRow, ...rest } = oneRowOf(gatherQuantizedMatvecKernel, variant, sizes, x, [buffers], device);
    encoder.dispatch(gatherQuantizedMatvecKernel, { ...given, ...rest, buffers, sizes: { ...sizes, oneRow } });
  }
}

/** What a call multiplies; undefined where the check of the options says next what is wrong. */
function productsOf(c: Seen) {
  const dims = quantizedDims(c, PRODUCT_BITS);
  if (!dims) return undefined;
  const { stack, rows, cols, groupSize, bits } = dims;
  const { x, weight } = c.tensors as { x: Tensor; weight: Tensor };
  if (stack.length !== 1) c.fail("weight", "have 3 dimensions [E, rows, words]", weight.shape);
  if (x.lastDim !== cols) c.fail("x", `have a last dimension of ${cols} (cols)`, x.shape);
  const matrices = stack[0] as number;
  const int8 = c.options.approximate !== undefined;
  const gathered = gatheredProducts(c, matrices);
  return { ...gathered, matrices, rows, cols, groupSize, bits, int8 };
}
export type Products = NonNullable<ReturnType<typeof productsOf>>;

/** How a call is launched: by pairs, or by slots where the block says panels. */
export function launchOf(products: Products, ordered: boolean, device: Device) {
  const { pairs, m, matrices, rows, cols, groupSize, int8 } = products;
  const sizes = { pairs, m, matrices, rows, cols, groupSize, int8, ordered };
  const panels = (mBlock: number) => scratchFits(gatherQuantizedMatmulKernel, { ...sizes, mBlock }, device);
  const few = (mBlock: number) => scratchFits(gatherQuantizedMatvecKernel, { ...sizes, mBlock }, device);
  const block = ordered ? panelBlock(pairs, cols, panels) : blockOf(m, cols, { panels, few });
  return { block, sizes: { ...sizes, mBlock: block.rows } };
}

/**
 * Products with quantized matrices of a stack that indices choose, as blocks of experts need them: pair p is
 * `out[p] = x[p] · W[rhsIndices[p]]ᵀ`.
 *
 * - `x` [.., M, cols] f32, f16 or bf16; `q` a `Quantized` [E, rows, cols] with bits 4 or 8; `rhsIndices` [.., k] u32 or i32.
 *   `lhsIndices`, of the same dtype, optional: the matrix of x of each pair, counted over its leading dimensions; index
 *   shapes broadcast, along three dimensions at most. Without it the leading dimensions of x broadcast with `rhsIndices`.
 *   `out` [.., M, rows], in the order of the pairs: x [T, 1, 1, D] with `rhsIndices` [T, k] gives [T, k, 1, rows].
 * - `order` i32 [pairs] and `offsets` i32 [E + 1], from `moeOrder`, both or neither, with M = 1 and up to 65536 matrices: the
 *   pairs of one matrix are then one product, whose rows of x are read where they lie. Without them each pair reads its matrix
 *   by itself.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 * - `approximate` as in `quantizedMatmul`; default: exact.
 *
 * Matrices that nobody chooses are not read. Numerics and limits as in `quantizedMatmul`. Errors: `InvalidArgument` for
 * shapes, dtypes, attributes and overlap; `UnsupportedDtype` for other widths and modes. An index, an offset or a pair of
 * the order that is wrong fails the submission with `InvalidArgument`, naming the first one and its position; nothing
 * outside the tensors is read or written. Source: MLX affine quantization, `mx.gather_qmm`.
 */
export const gatherQuantizedMatmul: GatherQuantizedMatmul = defineOp({
  name: "gatherQuantizedMatmul",
  summary: "x · W[rhsIndices]ᵀ, W = scale·q + bias",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: { text: "..., M, cols", of: ({ tensors }) => (tensors.x as Tensor).shape },
      doc: "matrices to multiply",
    },
    q: QUANTIZED,
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
      doc: "the product of each pair",
    },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of x" },
    approximate: APPROXIMATE,
  },
  relations(c) {
    productsOf(c);
  },
  check(c) {
    checkApproximate(c);
    const products = productsOf(c) as Products;
    const { device, inputs } = c;
    checkBlock(c, launchOf(products, inputs.order !== undefined, device).block, products.cols, device);
  },
  encode(c) {
    const { encoder, op, inputs, outputs } = c;
    encodeGathered(encoder, op, { ...inputs, out: outputs.out }, productsOf(c) as Products);
  },
});
