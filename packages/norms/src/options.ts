import { NORM_OPTIONS, type NormRows, normRowsOnGpu as rowsOnGpu, type Tensor } from "@mlxts/core";

export {
  NORM_OPTIONS,
  NORM_PARAMS,
  NORM_SCRATCH as ROW_SCRATCH,
  NORM_VARIANTS as WEIGHTED,
  type NormRows as Rows,
  normParams,
  normRowsOnGpu as rowsOnGpu,
} from "@mlxts/core";

export const { eps: EPS, weightOffset: WEIGHT_OFFSET, rounding: ROUNDING } = NORM_OPTIONS;

/** Lanes of a simdgroup. */
const SIMD = 32;
/** Elements of a CPU's threadgroup: a handful of head vectors then runs inline. */
const CPU_ELEMENTS = 4096;

/** What `rowsOnCpu` adds to a kernel's declaration. */
export const ROW_LAUNCH_PARAMS = { cpu: { rowsPerThreadgroup: "u32" } } as const;

/** Whole rows to a CPU's threadgroup. */
export function rowsOnCpu({ rows, dim }: NormRows) {
  const rowsPerThreadgroup = Math.max(1, Math.floor(CPU_ELEMENTS / dim));
  return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1] as const, params: { rowsPerThreadgroup } };
}

/** As many long rows as this keep all multiprocessors of an NVIDIA GPU busy with half the threads to each. */
const MANY_ROWS = 512;
const ROW_THREADS_OF_MANY = 256;

/** The same on NVIDIA's GPUs, where threads with more elements each read faster, if there are rows enough. */
export function rowsOnCuda(sizes: NormRows) {
  const launch = rowsOnGpu(sizes);
  const [threads, together] = launch.threadsPerThreadgroup;
  if (sizes.rows <= MANY_ROWS || threads <= ROW_THREADS_OF_MANY) return launch;
  return {
    ...launch,
    threadsPerThreadgroup: [ROW_THREADS_OF_MANY, together, 1] as const,
    scratch: { partial: [ROW_THREADS_OF_MANY / SIMD] },
  };
}

/** A bit for each weight that is f32. */
export const f32Weights = (...weights: readonly Tensor[]): number =>
  weights.reduce((bits, { dtype }, i) => bits | (dtype === "f32" ? 1 << i : 0), 0);

/** Of norms that take two sums of each row, one after the other: each has threadgroup memory of its own. */
export const TWO_NORMS_SCRATCH = { gpu: { partial: "f32", second: "f32" } } as const;

export function twoNormsOnGpu(sizes: NormRows) {
  const { scratch, ...launch } = rowsOnGpu(sizes);
  return { ...launch, scratch: { ...scratch, second: scratch.partial } };
}
