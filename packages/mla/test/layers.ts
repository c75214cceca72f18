// Layers whose caches hold rows already, for tests against attention with decompressed keys and values.
import { type Device, decodeNumbers, encodeNumbers, type FloatDtype } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import type { DecompressedAttention } from "../src/reference_attention.ts";

/** Numbers as a tensor of the dtype holds them. */
const rounded = (random: Random, dtype: FloatDtype, size: number, scale = 1) => {
  const numbers = random.normals(size).map((v) => v * scale);
  return decodeNumbers(dtype, encodeNumbers(dtype, numbers));
};

export type Sizes = Pick<DecompressedAttention["sizes"], "H" | "R" | "rope" | "nope" | "v">;

/** Makes layers whose numbers do not depend on what other layers the process has made. */
export function layerMaker() {
  const random = new Random(31);
  return (dtype: FloatDtype, lengths: readonly number[], L: number, sizes: Sizes) =>
    makeLayer(random, dtype, lengths, L, sizes);
}

/** Caches with the rows of all sequences, and NaN behind them; q of their last L tokens. */
function makeLayer(random: Random, dtype: FloatDtype, lengths: readonly number[], L: number, sizes: Sizes) {
  const { H, R, rope, nope, v } = sizes;
  const [N, capacity] = [lengths.length, Math.max(...lengths, L) + 2];
  const rows = (columns: number) => {
    const data = new Float64Array(N * capacity * columns).fill(Number.NaN);
    for (const [n, length] of lengths.entries())
      data.set(rounded(random, dtype, length * columns), n * capacity * columns);
    return data;
  };
  const problem: DecompressedAttention = {
    qNope: rounded(random, dtype, N * L * H * nope),
    qPe: rounded(random, dtype, N * L * H * rope),
    latents: rows(R),
    keys: rows(rope),
    weight: rounded(random, dtype, H * (nope + v) * R, R ** -0.5),
    lengths,
    sizes: { N, L, capacity, ...sizes },
    scale: (nope + rope) ** -0.5,
  };
  const tensors = (device: Device) => ({
    q: device.tensor(dtype, [N, L, H, nope], problem.qNope),
    qPe: device.tensor(dtype, [N, L, H, rope], problem.qPe),
    latentCache: device.tensor(dtype, [N, capacity, R], problem.latents),
    kPeCache: device.tensor(dtype, [N, capacity, rope], problem.keys),
    kvB: device.tensor(dtype, [H * (nope + v), R], problem.weight),
    lengths: device.tensor("i32", [N], lengths),
  });
  return { problem, tensors, options: { nope, softmaxScale: problem.scale } };
}
