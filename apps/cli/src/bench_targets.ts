// What ops should take. On a CPU: the settings that are compared with other libraries, and the time that each should need at
// most, as a multiple of what the machine allows on one thread and on two.
import type { BenchCase } from "@mlxts/core/testing";
import { digits, type Limit, type PeerTime, type Target } from "./bench_report.ts";

export interface OpTarget {
  op: string;
  /** The name of the benchmark's case. */
  case: string;
  /** What it stands for. */
  about: string;
  /** What the limit follows from, where the case does not say so. */
  limit?: Pick<BenchCase, "from" | "products"> & { flops?: number };
  times: readonly [one: number, two: number];
  /**
   * The same where the limit is that of tiles: they multiply sixteen times as fast as vectors, which still decode codes, take
   * exponentials and scale sums, in a time that the limit does not have.
   */
  tileTimes?: readonly [one: number, two: number];
}

const matrix = (rows: number, x: string, hot = false) =>
  `${rows}×4096 · 4096×4096ᵀ, 4 bits, x ${x}${hot || rows > 8 ? "" : ", cold"}`;
/** Attention over whole squares, as libraries without a causal form compute it. */
const square = (tokens: number, heads: number, perPair: number) => 2 * tokens * tokens * heads * perPair;

export const OP_TARGETS: readonly OpTarget[] = [
  ...["bf16", "f32"].flatMap((x): OpTarget[] => [
    {
      op: "quantizedMatmul",
      case: matrix(1, x),
      about: "4-bit product, 1 row, cold",
      limit: { from: "memory" },
      times: [1.19, 1.14],
    },
    {
      op: "quantizedMatmul",
      case: matrix(1, x, true),
      about: "4-bit product, 1 row, hot",
      limit: { from: "shared cache" },
      times: [1.65, 1.66],
    },
    {
      op: "quantizedMatmul",
      case: matrix(4, x),
      about: "4-bit product, 4 rows, cold",
      limit: { from: "memory" },
      times: [1.43, 1.37],
    },
  ]),
  {
    op: "quantizedMatmul",
    case: matrix(1, "bf16 in int8", true),
    about: "4-bit product, 1 row in int8, hot",
    limit: { from: "shared cache" },
    times: [1.13, 1.12],
  },
  {
    op: "quantizedMatmul",
    case: matrix(512, "bf16"),
    about: "4-bit product, 512 rows",
    times: [1.16, 1.2],
    tileTimes: [2, 2.1],
  },
  {
    op: "gatherQuantizedMatmul",
    case: "512×2048, 8 of 128 experts 768×2048, x bf16, ordered",
    about: "experts, 512 tokens",
    times: [1.46, 1.58],
  },
  { op: "rmsNorm", case: "[1, 4096] f32", about: "RMS norm, 1 row", limit: { from: "core cache" }, times: [2.4, 2.4] },
  {
    op: "rmsNorm",
    case: "[512, 4096] f32",
    about: "RMS norm, 512 rows",
    limit: { from: "shared cache" },
    times: [1.73, 2.27],
  },
  {
    op: "gatedDeltaRule",
    case: "T1 Hk16 H32 K128 V128 f32 recurrent",
    about: "gated delta rule, 1 token",
    limit: { from: "shared cache" },
    times: [1.4, 1.45],
  },
  ...[16, 64].map(
    (length): OpTarget => ({
      op: "gatedDeltaRule",
      case: `T512 Hk16 H32 K128 V128 f32 chunk ${length}`,
      about: `gated delta rule, 512 tokens, chunks of ${length}`,
      limit: { products: "f32" },
      times: [1.1, 1.14],
    }),
  ),
  {
    op: "mlaAttention",
    case: "1 of 4096, 16 heads, bf16",
    about: "folded latent attention, 1 token",
    limit: { from: "shared cache", products: "bf16" },
    times: [1.43, 1.5],
  },
  {
    op: "mlaPrefill",
    case: "512 of 512, 16 heads, bf16",
    about: "latent attention, 512 tokens; limit of the folded square",
    limit: { products: "bf16", flops: square(512, 16, 1088) },
    times: [1.4, 1.46],
    tileTimes: [2, 2.1],
  },
  {
    op: "sdpa",
    case: "1 of 4096, 32/8 heads of 128, bf16, cache bf16",
    about: "grouped attention, 1 token",
    limit: { from: "memory", products: "bf16" },
    times: [1.43, 1.29],
  },
  {
    op: "sdpa",
    case: "512 of 512, 32/8 heads of 128, bf16, cache bf16",
    about: "grouped attention, 512 tokens; limit of the whole square",
    limit: { products: "bf16", flops: square(512, 32, 256) },
    times: [1.43, 1.55],
    tileTimes: [3, 3.2],
  },
  {
    op: "causalConv1d",
    case: "T512 C8192 W4 f32 silu",
    about: "causal convolution, 512 tokens",
    limit: { from: "memory" },
    times: [1.5, 1.14],
  },
];

/** What a target allows on so many threads, as a multiple of this limit; undefined where nothing is set. */
const allowedTimes = ({ times, tileTimes = times }: OpTarget, limit: Limit, threads: number): number | undefined =>
  (limit.of.endsWith("tiles") ? tileTimes : times)[threads - 1];

/** What an op should take on an H200: a multiple of the fastest peer's time, or the time for its bytes at a speed. */
export type GpuTarget = { op: string; case: string; about: string } & ({ timesPeer: number } | { gbs: number });

const CHUNK_LAYERS = ["T4096 Hk2 H4 K128 V128 bf16", "T8192 Hk16 H32 K128 V128 bf16"];
export const GPU_TARGETS: readonly GpuTarget[] = [
  ...CHUNK_LAYERS.flatMap((layer): GpuTarget[] => [
    { op: "gatedDeltaRule", case: `${layer} chunk`, about: "chunk forward, all stages", timesPeer: 1 },
    { op: "chunkState", case: `${layer} 64`, about: "chunk state", timesPeer: 1 },
  ]),
  { op: "gatedDeltaRule", case: "T1 Hk16 H32 K128 V128 bf16 recurrent", about: "recurrent step", timesPeer: 1 },
  {
    op: "sdpa",
    case: "4096 of 4096, 16/16 heads of 128, bf16, cache bf16",
    about: "causal attention",
    timesPeer: 1.3,
  },
  { op: "quantizedMatmul", case: matrix(512, "bf16"), about: "4-bit product beside a dense one", timesPeer: 2 },
  {
    op: "quantizedMatmul",
    case: "1×4096 · 11008×4096ᵀ, 4 bits, x bf16, cold",
    about: "4-bit product, 1 row, 2.5 TB/s",
    gbs: 2500,
  },
  ...["f32", "bf16"].map(
    (dtype): GpuTarget => ({ op: "rmsNorm", case: `[4096, 4096] ${dtype}`, about: "RMS norm", timesPeer: 1.05 }),
  ),
];

export const gpuTarget = (op: string, testCase: BenchCase): GpuTarget | undefined =>
  GPU_TARGETS.find((each) => each.op === op && each.case === testCase.name);

/** The case with what its target says of its limit; undefined for a case without a target. */
export function targeted(op: string, testCase: BenchCase): { testCase: BenchCase; target: OpTarget } | undefined {
  const target = OP_TARGETS.find((each) => each.op === op && each.case === testCase.name);
  return target && { testCase: { ...testCase, ...target.limit }, target };
}

type Demand = Pick<Target, "value" | "text">;

/** What a CPU may take; null where nothing is set for so many threads. */
export function cpuDemand(target: OpTarget, limit: Limit, threads: number): Demand | null {
  const factor = allowedTimes(target, limit, threads);
  return factor ? { value: factor * limit.value, text: `${digits(factor)} × the limit` } : null;
}

/** What a GPU may take; null without a target, or where no peer of it is installed. */
export function gpuDemand(
  target: GpuTarget | undefined,
  { bytes }: BenchCase,
  peers: readonly PeerTime[],
): Demand | null {
  if (!target) return null;
  if ("gbs" in target) return { value: bytes / target.gbs / 1000, text: `${target.gbs / 1000} TB/s` };
  const [first, ...rest] = peers;
  if (!first) return null;
  const best = rest.reduce((least, each) => (each.median < least.median ? each : least), first);
  return { value: target.timesPeer * best.median, text: `${target.timesPeer} × ${best.name}` };
}
