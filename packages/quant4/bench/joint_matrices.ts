// Cases of products of one x with several matrices; "cold" as a model does it from layer to layer: no weight is in a cache.
import { type CommandEncoder, type Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type BenchCase, Random } from "@mlxts/core/testing";
import type { Quantized } from "../src/index.ts";

const GROUP = 64;
/** Bytes of different weights that no cache holds. */
const COLD_BYTES = 96 << 20;

export interface Joint {
  m: number;
  cols: number;
  /** Of each matrix. */
  rows: readonly number[];
  dtype: FloatDtype;
}

const matrixBytes = (rows: number, cols: number) => rows * cols * (1 / 2 + 4 / GROUP);

function matrix(device: Device, rows: number, cols: number, random: Random): Quantized {
  const words = Uint32Array.from({ length: (rows * cols) / 8 }, () => random.below(2 ** 32));
  const groups = (rows * cols) / GROUP;
  return {
    weight: device.tensor("u32", [rows, cols / 8], words),
    scales: device.tensor("bf16", [rows, cols / GROUP], random.uniforms(groups, -0.01, 0.01)),
    biases: device.tensor("bf16", [rows, cols / GROUP], random.uniforms(groups, -0.05, 0.05)),
    bits: 4,
    groupSize: GROUP,
    mode: "affine",
  };
}

/** A case of the op, and one of the ops that it stands for. `encode` gets an output for each matrix. */
export function jointCases(
  joint: Joint,
  op: (encoder: CommandEncoder, x: Tensor, matrices: readonly Quantized[], outs: readonly Tensor[]) => void,
  chain: typeof op,
): BenchCase[] {
  const { m, cols, rows, dtype } = joint;
  const weights = rows.reduce((sum, count) => sum + matrixBytes(count, cols), 0);
  const copies = Math.max(1, Math.ceil(COLD_BYTES / weights));
  const outputs = rows.reduce((a, b) => a + b, 0);
  return [op, chain].map((encode) => ({
    name: `${m}×${cols} · ${rows.join(" + ")} rows, x ${dtype}${encode === chain ? ", ops one by one" : ""}`,
    bytes: weights + (m * cols + m * outputs) * DTYPES[dtype].bytesPerElement,
    flops: 2 * m * cols * outputs,
    setup(device) {
      const random = new Random(2);
      const x = device.tensor(dtype, [m, cols], random.normals(m * cols, 1 / Math.sqrt(cols)));
      const first = rows.map((count) => matrix(device, count, cols, random));
      const all = Array.from({ length: copies }, (_, copy) =>
        first.map((q) =>
          copy === 0 ? q : { ...q, weight: device.tensor("u32", q.weight.shape, q.weight.readSync() as Uint32Array) },
        ),
      );
      const outs = rows.map((count) => device.tensor(dtype, [m, count]));
      let next = 0;
      return { encode: (encoder) => encode(encoder, x, all[next++ % copies] as Quantized[], outs) };
    },
  }));
}
