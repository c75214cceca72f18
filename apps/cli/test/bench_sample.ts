// A report as `mlxts bench op` makes it, without measuring anything.
import type { BenchReport, BenchRow } from "../src/bench_report.ts";

const spread = (median: number) => ({ median, least: median * 0.93, most: median * 1.12, samples: 9 });

const limits = [1, 2].map((threads) => ({
  threads,
  gflopsF32: 254 * threads,
  gflopsBf16: 508 * threads,
  gopsInt8: 1020 * threads,
  gflopsBf16Tiles: null,
  gopsInt8Tiles: null,
  memoryGBs: 40 + 4 * threads,
  sharedCacheGBs: 97 * threads,
  coreCacheGBs: 200 * threads,
}));

/** Names that would be markup if they were not escaped. */
export const HOSTILE = `<script>document.title = "hurt"</script><img src=x onerror='document.title="hurt"'> & "quoted"`;

interface Sample {
  name: string;
  case: string;
  bytes: number;
  operations: number;
  /** µs of ours, on one thread, and of peers. */
  time: number;
  peers?: Record<string, number>;
  factor?: number;
}

const MATRIX = 4096 * 4096;

const SAMPLES: Sample[] = [
  {
    name: "quantizedMatmul",
    case: "1 × 4096², cold",
    bytes: MATRIX * 0.5625,
    operations: 2 * MATRIX,
    time: 279,
    factor: 1.19,
    peers: { "onnxruntime MatMulNBits": 360, "OpenVINO with int8 activations": 384 },
  },
  {
    name: "quantizedMatmul",
    case: "4 × 4096², cold",
    bytes: MATRIX * 0.5625,
    operations: 8 * MATRIX,
    time: 330,
    factor: 1.3,
  },
  {
    name: "quantizedMatmul",
    case: "512 × 4096², bf16",
    bytes: MATRIX,
    operations: 1024 * MATRIX,
    time: 52_000,
    factor: 1.16,
    peers: { "onnxruntime MatMulNBits": 59_200 },
  },
  { name: "rmsNorm", case: "1 × 4096 f32", bytes: 4e4, operations: 1.6e4, time: 0.6, peers: { onnxruntime: 1.2 } },
  { name: "rmsNorm", case: "512 × 4096 f32", bytes: 1.68e7, operations: 8.4e6, time: 320, factor: 1.2 },
  {
    name: "gatedDeltaRule",
    case: "one token, 32 heads of 128 × 128",
    bytes: 4.2e6,
    operations: 3.7e6,
    time: 61,
    factor: 1.4,
  },
  {
    name: "gatedDeltaRule",
    case: "512 tokens, 32 heads of 128 × 128",
    bytes: 4e7,
    operations: 1.9e9,
    time: 8100,
    factor: 1.1,
  },
  { name: "sdpa", case: "one query, 4096 keys, 32 heads of 128", bytes: 1.68e7, operations: 6.7e7, time: 590 },
  { name: "causalConv1d", case: "8192 × 512, 4 taps", bytes: 3.4e7, operations: 3.4e7, time: 1180, factor: 1.5 },
  { name: "embedding", case: "16 rows of 4096", bytes: 2.6e5, operations: 0, time: 9 },
  { name: HOSTILE, case: HOSTILE, bytes: 1e6, operations: 1e9, time: 4000, peers: { [HOSTILE]: 2e4 } },
];

function rowOf({ name, case: text, bytes, operations, time, peers = {}, factor }: Sample, threads: number): BenchRow {
  const { memoryGBs, gflopsF32 } = limits[threads - 1] as (typeof limits)[number];
  const [moving, computing] = [bytes / memoryGBs / 1e3, operations / gflopsF32 / 1e3];
  const limit = { value: Math.max(moving, computing), of: moving >= computing ? "memory" : "f32 products" };
  const ours = spread(time / threads ** 0.8);
  return {
    name,
    case: text,
    threads,
    unit: "µs",
    ours,
    peers: Object.entries(peers).map(([peer, value]) => ({ name: peer, ...spread(value / threads ** 0.9) })),
    limit,
    work: { bytes, operations },
    target: factor
      ? {
          value: factor * limit.value,
          text: `${factor} × the limit`,
          met: ours.median <= factor * limit.value,
        }
      : null,
    base: name === "sdpa" ? { revision: "7d73a4e21", spread: spread(time * 1.4), ratio: 1 / 1.4 } : null,
    note: null,
  };
}

const rows = SAMPLES.flatMap((sample) => [rowOf(sample, 1), rowOf(sample, 2)]);
const failed: BenchRow = {
  ...(rows[0] as BenchRow),
  name: "moeCombine",
  case: "512 tokens",
  ours: null,
  peers: [],
  limit: null,
  work: null,
  target: null,
  note: "not measured: 3 conformance cases fail; see mlxts verify --op moeCombine",
};

export const SAMPLE: BenchReport = {
  tool: "mlxts bench op",
  versions: { mlxts: "0.1.0", "@mlxts/core": "0.1.0", "@mlxts/quant4": "0.1.0" },
  system: { platform: "linux", arch: "x64", os: "Linux 6.1", cpu: "A Processor of 8 Cores", node: "22.1.0" },
  device: { kind: "cpu", name: "cpu", level: "avx512" },
  date: "2026-11-23T06:00:00.000Z",
  limits,
  verified: ["quantizedMatmul"],
  rows: [...rows, failed],
};
