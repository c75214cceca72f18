import { NORM_OPTIONS, type NormRows, normRowsOnCuda, normRowsOnGpu, type Tensor } from "@mlxts/core";

export {
  NORM_OPTIONS,
  NORM_PARAMS,
  NORM_SCRATCH as ROW_SCRATCH,
  NORM_VARIANTS as WEIGHTED,
  type NormRows as Rows,
  normParams,
} from "@mlxts/core";

export const { eps: EPS, weightOffset: WEIGHT_OFFSET, rounding: ROUNDING } = NORM_OPTIONS;

/** Elements of a CPU's threadgroup: a handful of head vectors then runs inline. */
const CPU_ELEMENTS = 4096;

/** What `rowsOnCpu` adds to a kernel's declaration. */
export const ROW_LAUNCH_PARAMS = { cpu: { rowsPerThreadgroup: "u32" } } as const;

/** Whole rows to a CPU's threadgroup. */
export function rowsOnCpu({ rows, dim }: NormRows) {
  const rowsPerThreadgroup = Math.max(1, Math.floor(CPU_ELEMENTS / dim));
  return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1] as const, params: { rowsPerThreadgroup } };
}

/** The launch rules of norms with one sum of each row. */
export const ROW_LAUNCH = { cpu: rowsOnCpu, gpu: normRowsOnGpu, cuda: normRowsOnCuda };

/** A bit for each weight that is f32. */
export const f32Weights = (...weights: readonly Tensor[]): number =>
  weights.reduce((bits, { dtype }, i) => bits | (dtype === "f32" ? 1 << i : 0), 0);

/** Of norms that take two sums of each row, one after the other: each has threadgroup memory of its own. */
export const TWO_NORMS_SCRATCH = { gpu: { partial: "f32", second: "f32" } } as const;

const twice = ({ scratch, ...launch }: ReturnType<typeof normRowsOnGpu>) => ({
  ...launch,
  scratch: { ...scratch, second: scratch.partial },
});

/** Their launch rules on GPUs. */
export const TWO_NORMS_ON_GPUS = {
  gpu: (sizes: NormRows) => twice(normRowsOnGpu(sizes)),
  cuda: (sizes: NormRows) => twice(normRowsOnCuda(sizes)),
};
