// Fused norms beside their chains of ops of several packages: node scripts/run-source.mjs packages/models/bench/norm_chains.ts
import { alternate, timedCase } from "@mlxts/bench";
import { type CommandEncoder, Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type BenchCase, Random } from "@mlxts/core/testing";
import { moeCombine } from "@mlxts/moe";
import { add, elementwiseMul } from "@mlxts/nn";
import {
  addRmsNorm,
  fusedMoeWsumPostFfNorm2EndLayer,
  fusedPostAttnTripleNorm,
  fusedPostFfNorm2EndLayer,
  rmsNorm,
  rmsNormAdd,
  rmsNormMul,
} from "@mlxts/norms";

const DIM = 2816;
const TOP_K = 8;

interface Chain {
  /** Rows that one op reads and writes, and that the chain does, for each row of the result. */
  rows: { fused: number; chain: number };
  flops: number;
  setup(make: ReturnType<typeof tensorsOf>): {
    fused(encoder: CommandEncoder): void;
    chain(encoder: CommandEncoder): void;
  };
}

function tensorsOf(device: Device, rows: number, dtype: FloatDtype) {
  const random = new Random(17);
  return {
    row: (): Tensor => device.tensor(dtype, [rows, DIM], random.normals(rows * DIM)),
    weight: (): Tensor => device.tensor(dtype, [DIM], random.normals(DIM, 0.2, 1)),
    experts: (): Tensor => device.tensor(dtype, [rows, TOP_K, DIM], random.normals(rows * TOP_K * DIM)),
    routing: (): Tensor => device.tensor("f32", [rows, TOP_K], random.uniforms(rows * TOP_K)),
    scale: (): Tensor => device.tensor("f32", [1], [1.25]),
  };
}

const CHAINS: Record<string, Chain> = {
  "rmsNormMul: rmsNorm, elementwiseMul": {
    rows: { fused: 3, chain: 5 },
    flops: 5,
    setup(make) {
      const [x, factor, normed, out, weight] = [make.row(), make.row(), make.row(), make.row(), make.weight()];
      return {
        fused: (encoder) => void rmsNormMul(encoder, { x, weight, factor, out }),
        chain(encoder) {
          rmsNorm(encoder, { x, weight, out: normed });
          elementwiseMul(encoder, { a: normed, b: factor, out });
        },
      };
    },
  },
  "rmsNormAdd: rmsNorm, add": {
    rows: { fused: 3, chain: 5 },
    flops: 5,
    setup(make) {
      const [x, residual, normed, out, weight] = [make.row(), make.row(), make.row(), make.row(), make.weight()];
      return {
        fused: (encoder) => void rmsNormAdd(encoder, { x, weight, residual, out }),
        chain(encoder) {
          rmsNorm(encoder, { x, weight, out: normed });
          add(encoder, { a: residual, b: normed, out });
        },
      };
    },
  },
  "addRmsNorm: add, rmsNorm": {
    rows: { fused: 4, chain: 5 },
    flops: 5,
    setup(make) {
      const [a, b, sum, out, weight] = [make.row(), make.row(), make.row(), make.row(), make.weight()];
      return {
        fused: (encoder) => void addRmsNorm(encoder, { a, b, weight, sum, out }),
        chain(encoder) {
          add(encoder, { a, b, out: sum });
          rmsNorm(encoder, { x: sum, weight, out });
        },
      };
    },
  },
  "fusedPostAttnTripleNorm: rmsNorm, add, rmsNorm three times": {
    rows: { fused: 6, chain: 11 },
    flops: 15,
    setup(make) {
      const [hidden, attn, normed, res] = [make.row(), make.row(), make.row(), make.row()];
      const weightPost = make.weight();
      const [weightA, weightB, weightC] = [make.weight(), make.weight(), make.weight()];
      const [outA, outB, outC] = [make.row(), make.row(), make.row()];
      const last = { weightA, weightB, weightC, outA, outB, outC };
      return {
        fused: (encoder) => void fusedPostAttnTripleNorm(encoder, { hidden, attn, weightPost, res, ...last }),
        chain(encoder) {
          rmsNorm(encoder, { x: attn, weight: weightPost, out: normed });
          add(encoder, { a: hidden, b: normed, out: res });
          rmsNorm(encoder, { x: res, weight: weightA, out: outA });
          rmsNorm(encoder, { x: res, weight: weightB, out: outB });
          rmsNorm(encoder, { x: res, weight: weightC, out: outC });
        },
      };
    },
  },
  // Its last product, with one number, is left out.
  "fusedPostFfNorm2EndLayer: rmsNorm, add, twice": {
    rows: { fused: 4, chain: 10 },
    flops: 12,
    setup(make) {
      const [x, attn, residual, hidden] = [make.row(), make.row(), make.row(), make.row()];
      const [normed, m, weight2, weight3] = [make.row(), make.row(), make.weight(), make.weight()];
      const end = { attn, x, residual, weight2, weight3, scale: make.scale(), hidden };
      return {
        fused: (encoder) => void fusedPostFfNorm2EndLayer(encoder, end),
        chain(encoder) {
          rmsNorm(encoder, { x, weight: weight2, out: normed });
          add(encoder, { a: attn, b: normed, out: m });
          rmsNorm(encoder, { x: m, weight: weight3, out: normed });
          add(encoder, { a: residual, b: normed, out: hidden });
        },
      };
    },
  },
  "fusedMoeWsumPostFfNorm2EndLayer: moeCombine, fusedPostFfNorm2EndLayer": {
    rows: { fused: TOP_K + 3, chain: TOP_K + 5 },
    flops: 2 * TOP_K + 11,
    setup(make) {
      const [experts, routing, combined] = [make.experts(), make.routing(), make.row()];
      const end = {
        ...{ attn: make.row(), residual: make.row(), hidden: make.row() },
        ...{ weight2: make.weight(), weight3: make.weight(), scale: make.scale() },
      };
      return {
        fused: (encoder) => void fusedMoeWsumPostFfNorm2EndLayer(encoder, { ...end, experts, routing }),
        chain(encoder) {
          moeCombine(encoder, { y: experts, weights: routing, out: combined });
          fusedPostFfNorm2EndLayer(encoder, { ...end, x: combined });
        },
      };
    },
  },
};

function benchCase(name: string, kind: "fused" | "chain", rows: number, dtype: FloatDtype): BenchCase {
  const chain = CHAINS[name] as Chain;
  return {
    name: `[${rows}, ${DIM}] ${dtype} ${kind === "fused" ? name.split(":")[0] : `as a chain of${name.split(":")[1]}`}`,
    bytes: chain.rows[kind] * rows * DIM * DTYPES[dtype].bytesPerElement,
    flops: chain.flops * rows * DIM,
    setup: (device) => ({ encode: chain.setup(tensorsOf(device, rows, dtype))[kind] }),
  };
}

console.log("| op, and its chain | rows, dtype | µs fused | µs chain |\n| --- | --- | --- | --- |");
for (const name of Object.keys(CHAINS))
  for (const rows of [1, 512])
    for (const dtype of ["f32", "bf16"] as const) {
      using device = Device.open("cpu", { threads: 1 });
      const [fused, chain] = [benchCase(name, "fused", rows, dtype), benchCase(name, "chain", rows, dtype)];
      const times = await alternate([await timedCase(fused, device), await timedCase(chain, device)], 9);
      const cells = times.map(({ median }) => median.toPrecision(3));
      console.log(`| ${[name, `${rows}, ${dtype}`, ...cells].join(" | ")} |`);
    }
