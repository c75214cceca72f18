import {
  type CommandEncoder,
  constantsOf,
  type Device,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  type FloatDtype,
  GATHERED_FAULTS,
  GATHERED_PARAMS,
  type GatheredSizes,
  gatheredInputs,
  gatheredProducts,
  gatheredSlots,
  type OpContext,
  ORDERED_FAULTS,
  type Tensor,
} from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import {
  AMX_CONSTANTS,
  columnsOnCpu,
  columnsOnGpu,
  FEW_ROWS,
  fewRows,
  fewRowsOnGpu,
  mostTileRows,
  PANEL,
  PRODUCT_VARIANTS,
  packedRowBytes,
  paddedRow,
  panelScratch,
  TILE,
  tileElementBytes,
  tileScratch,
  tilesOnCpu,
} from "./product_launch.ts";
import type { GatherMatmul } from "./signatures.ts";

const BUFFERS = { x: "read", weight: "read", rhsIndices: "read", lhsIndices: "read?", starts: "read?" } as const;
/** `startEnd`: matrices of a weight of one dimension begin below. */
const PARAMS = { ...GATHERED_PARAMS, n: "u32", k: "u32", startEnd: "u32" } as const;
/** The text for a wrong entry of the index input `name`, of matrices that begin below the parameter `end`. */
export const startsFault =
  <End extends string>(name: string, end: End) =>
  ([start, position]: readonly number[], params: Readonly<Record<End, number>>) =>
    `\`${name}\` must be from 0 to ${params[end] - 1}, got ${start} at position ${position}`;
const STARTS_FAULT = { starts: startsFault("starts", "startEnd") };
/** On a CPU so many rows of x are multiplied by one matrix at most before it is read again. */
const MOST_ROWS = 504;
/** Up to so many rows of one matrix meet it as they are; above, it is packed into panels. */
const UNPACKED_ROWS = 8;

export interface PairSizes extends Pick<GatheredSizes, "pairs" | "m"> {
  n: number;
  k: number;
}

/** Each pair by itself: few rows of x, by which each row of the chosen matrix is multiplied as it is read. */
export const gatherMatvecKernel = defineKernel({
  library: nnLibrary,
  name: "gather_matvec",
  variants: PRODUCT_VARIANTS,
  buffers: { ...BUFFERS, out: "write" },
  params: PARAMS,
  faults: { ...GATHERED_FAULTS, ...STARTS_FAULT },
  launchParams: { cpu: { groupColumns: "u32", width: "u32" }, gpu: { groupColumns: "u32" } },
  constants: FEW_ROWS,
  // held: whether the weight holds the matrix.
  scratch: { cpu: { x: "f32" }, gpu: { partial: "f32", held: "u32" } },
  launch: {
    cpu: ({ pairs, m, n, k }: PairSizes) => {
      const groupColumns = columnsOnCpu(k);
      const width = paddedRow(k);
      return {
        threadgroups: [Math.ceil(n / groupColumns), pairs, 1],
        params: { groupColumns, width },
        scratch: { x: [m, width] },
      };
    },
    gpu: ({ pairs, n, k }, { constants }) => {
      const groupColumns = columnsOnGpu(n * pairs, k, constants);
      const { scratch, ...threads } = fewRowsOnGpu(constants);
      return {
        threadgroups: [Math.ceil(n / groupColumns), pairs, 1],
        params: { groupColumns },
        ...threads,
        scratch: { ...scratch, held: [1] },
      };
    },
  },
});

interface SlotSizes extends PairSizes, GatheredSizes {
  elementBytes: number;
  /** Of a row of x that is packed for tiles; 0 where there are none. */
  rowBytes: number;
}

/** The pairs of a matrix as one product, or pairs with many rows of x each. */
export const gatherMatmulKernel = defineKernel({
  library: nnLibrary,
  name: "gather_matmul",
  variants: PRODUCT_VARIANTS,
  buffers: { ...BUFFERS, order: "read?", offsets: "read?", out: "write" },
  params: PARAMS,
  faults: { ...ORDERED_FAULTS, ...STARTS_FAULT },
  launchParams: { cpu: { groupRows: "u32", unpackedRows: "u32", width: "u32", tileColumns: "u32" } },
  constants: {
    cpu: { ...PANEL, mostElements: FEW_ROWS.cpu.mostElements, leftBytes: AMX_CONSTANTS.leftBytes },
    gpu: TILE,
  },
  // rows: of x and of out, for each row of a slot. slot: its matrix, its first row and how many it has.
  scratch: {
    cpu: {
      panels: "f32",
      converted: "f32",
      sums: "f32",
      tiles: "u8", // of x, and of the weight, where the processor multiplies tiles
      left: "u8",
      x: "f32",
      xRows: "u32",
      outRows: "u32",
    },
    gpu: { x: "u8", weight: "u8", xRows: "u32", outRows: "u32", slot: "u32" },
  },
  launch: {
    cpu: (sizes: SlotSizes, { constants }) => {
      const { ordered, pairs, m, n, k, rowBytes } = sizes;
      const [most, unit] = rowBytes > 0 ? [mostTileRows(rowBytes), 16] : [MOST_ROWS, PANEL.panelRows];
      const groupRows = Math.ceil(Math.min(ordered ? pairs : m, most) / unit) * unit;
      const { tileColumns, scratch } = tilesOnCpu(groupRows, rowBytes);
      const unpackedRows = fewRows(k, { rows: UNPACKED_ROWS, ...constants });
      const width = paddedRow(k);
      return {
        threadgroups: [Math.ceil(n / PANEL.groupColumns), gatheredSlots(sizes, groupRows), 1],
        params: { groupRows, unpackedRows, width, tileColumns },
        scratch: {
          ...panelScratch(groupRows),
          ...scratch,
          x: [Math.max(unpackedRows, 1), width],
          xRows: [groupRows],
          outRows: [groupRows],
        },
      };
    },
    gpu: (sizes) => ({
      threadgroups: [Math.ceil(sizes.n / TILE.columns), gatheredSlots(sizes, TILE.rows), 1],
      threadsPerThreadgroup: [TILE.threads, 1, 1],
      scratch: { ...tileScratch(true, sizes.elementBytes), xRows: [TILE.rows], outRows: [TILE.rows], slot: [3] },
    }),
  },
});

export type Seen = Pick<OpContext, "tensors" | "fail"> & { readonly options: { readonly rows?: unknown } };

/** What a call multiplies with a stack: matrices [rows, cols], one after the other or from `starts` on. */
export function productsWith(c: Seen, stack: string, startsName: string) {
  const { tensors, options, fail } = c;
  const { x, [stack]: weight, [startsName]: starts } = tensors as Record<string, Tensor>;
  const { shape } = weight as Tensor;
  const cols = (x as Tensor).lastDim;
  if (starts) {
    if (shape.length !== 1) fail(stack, `have shape [span] with \`${startsName}\``, shape);
    if (options.rows === undefined) fail("rows", `be given with \`${startsName}\``, undefined);
  } else {
    if (shape.length !== 3) fail(stack, `have shape [E, rows, cols] without \`${startsName}\``, shape);
    if (options.rows !== undefined && options.rows !== shape[1])
      fail("rows", `be that of \`${stack}\`, ${shape[1]}`, options.rows);
  }
  const rows = starts ? (options.rows as number) : (shape[1] as number);
  const matrices = starts ? starts.size : (shape[0] as number);
  return { ...gatheredProducts(c, matrices), matrices, rows, cols };
}

const productsOf = (c: Seen) => productsWith(c, "weight", "starts");

/** Matrices of a weight of one dimension begin below. */
export const startEndOf = (weight: Tensor, starts: Tensor | undefined, matrix: number) =>
  starts ? Math.min(weight.size - matrix + 1, 0xffffffff) : 0;

/** Refuses a weight with starts that is shorter than a matrix. */
export function checkSpan(fail: OpContext["fail"], name: string, weight: Tensor, matrix: number): void {
  if (weight.size < matrix) fail(name, `have a matrix of ${matrix} elements`, weight.shape);
}

export type Products = ReturnType<typeof productsOf>;

/** The tensors of a gathered product. */
export interface GatheredTensors extends Record<"x" | "weight" | "rhsIndices" | "out", Tensor> {
  lhsIndices?: Tensor | undefined;
  order?: Tensor | undefined;
  offsets?: Tensor | undefined;
  starts?: Tensor | undefined;
}

/** What the op calls `starts`. */
type Names = { readonly starts?: string };

/** Whether each pair is multiplied by itself, by the kernel for few rows of x. */
export const hasFewRowsEach = (m: number, k: number, ordered: boolean, device: Device) =>
  !ordered && m <= fewRows(k, constantsOf(gatherMatvecKernel, device));

/** The products of all pairs, as gatherMatmul does them. */
export function encodeGathered(
  encoder: CommandEncoder,
  op: string,
  { x, weight, rhsIndices, lhsIndices, starts, order, offsets, out }: GatheredTensors,
  { params, pairs, m, rows: n, cols: k, matrices }: Products,
  names: Names = {},
): void {
  const variant = `${x.dtype}_${weight.dtype}_${out.dtype}`;
  const common = { x, weight, rhsIndices, lhsIndices, starts, out };
  const startEnd = startEndOf(weight, starts, n * k);
  const given = { op, names, variant, params: { ...params, m, n, k, startEnd } };
  if (hasFewRowsEach(m, k, order !== undefined, encoder.device)) {
    encoder.dispatch(gatherMatvecKernel, { ...given, buffers: common, sizes: { pairs, m, n, k } });
    return;
  }
  const elementBytes = tileElementBytes(x.dtype as FloatDtype, weight.dtype as FloatDtype);
  encoder.dispatch(gatherMatmulKernel, {
    ...given,
    buffers: { ...common, order, offsets },
    sizes: {
      pairs,
      m,
      n,
      k,
      matrices,
      ordered: order !== undefined,
      elementBytes,
      rowBytes: packedRowBytes(encoder.device, x.dtype, k, true),
    },
  });
}

/**
 * Products with matrices of a stack that indices choose, as blocks of experts need them: pair p is
 * `out[p] = x[p] · weight[rhsIndices[p]]ᵀ`.
 *
 * - `x` [.., M, cols] f32, f16 or bf16; `weight` [E, rows, cols] f32, f16 or bf16, whatever x has; `rhsIndices` [.., k] u32
 *   or i32. `lhsIndices`, of the same dtype, optional: the matrix of x of each pair, counted over its leading dimensions;
 *   index shapes broadcast, along three dimensions at most. Without it the leading dimensions of x broadcast with
 *   `rhsIndices`. `out` [.., M, rows], in the order of the pairs: x [T, 1, 1, D] with `rhsIndices` [T, k] gives
 *   [T, k, 1, rows].
 * - `order` i32 [pairs] and `offsets` i32 [E + 1], from `moeOrder`, both or neither, with M = 1 and up to 65536 matrices: the
 *   pairs of one matrix are then one product, whose rows of x are read where they lie. Without them each pair reads its matrix
 *   by itself.
 * - `starts` u32 [E]: `weight` then has one dimension, and matrix e is its rows · cols elements from `starts[e]` on; `rows`
 *   says how many rows. Stacks of separate or interleaved matrices are used where they lie in a mapped file. Where `starts[e]`
 *   is `ELSEWHERE`, the weight does not hold matrix e, and the rows of `out` that it would give keep what they had: matrices in
 *   several weights, such as mapped files, take a call for each weight with the same `out`.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * Matrices that nobody chooses are not read. Products and sums as in `matmul`. Errors: `InvalidArgument` for shapes,
 * dtypes, options and overlap. An index, an order, an offset or a start that is out of range fails the submission with
 * `InvalidArgument`, naming the first one and its position; nothing outside the tensors is read or written.
 * Source: MLX, `mx.gather_mm`.
 */
export const gatherMatmul: GatherMatmul = defineOp({
  name: "gatherMatmul",
  summary: "x · weight[rhsIndices]ᵀ",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: {
        text: "..., M, cols",
        of: ({ tensors }) => {
          const { x, weight } = tensors as { x: Tensor; weight: Tensor };
          return weight.shape.length === 3 ? [...x.shape.slice(0, -1), weight.lastDim] : x.shape;
        },
      },
      doc: "matrices to multiply",
    },
    weight: {
      dtype: FLOATS,
      shape: {
        text: "E, rows, cols; with `starts`: span",
        of: ({ tensors }) => (tensors.weight as Tensor).shape,
      },
      doc: "the stack of matrices",
    },
    ...gatheredInputs(productsOf),
    starts: {
      dtype: ["u32"],
      shape: "E",
      optional: true,
      doc: "where each matrix begins in a weight of one dimension, counted in elements; `ELSEWHERE` where another weight has it",
    },
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
      doc: "the product of each pair",
    },
  },
  params: {
    rows: { kind: "number", integer: true, min: 1, optional: true, doc: "rows of a matrix; needed with `starts`" },
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "default: the dtype of x" },
  },
  relations(c) {
    productsOf(c);
  },
  rules(c) {
    const { rows, cols } = productsOf(c);
    const { weight, starts } = c.inputs;
    if (starts) checkSpan(c.fail, "weight", weight, rows * cols);
  },
  encode(c) {
    const { encoder, op, inputs, outputs } = c;
    encodeGathered(encoder, op, { ...inputs, out: outputs.out }, productsOf(c));
  },
});
