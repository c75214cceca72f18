import { type Checkpoint, encodeNumbers, type RawArray } from "@mlxts/core";

/** Rows and columns of a block, which share a scale. */
const BLOCK = 128;

const scalesOf = (weight: string) => `${weight}_scale_inv`;

/**
 * The numbers of E4M3, by byte: sign, 4 bits of exponent (bias 7), 3 of mantissa. No infinities; all ones is NaN. Micikevicius et
 * al., "FP8 Formats for Deep Learning", 2022.
 */
const E4M3 = Float32Array.from({ length: 256 }, (_, byte) => {
  const [exponent, mantissa] = [(byte >> 3) & 15, byte & 7];
  if (exponent === 15 && mantissa === 7) return Number.NaN;
  const magnitude = exponent === 0 ? mantissa * 2 ** -9 : (1 + mantissa / 8) * 2 ** (exponent - 7);
  return byte & 128 ? -magnitude : magnitude;
});

const isE4M3 = (checkpoint: Checkpoint, name: string) => checkpoint.info(name).storedDtype === "F8_E4M3";

/** Whether a tensor is a matrix in fp8 that has scales. */
export const isFp8 = (checkpoint: Checkpoint, name: string): boolean =>
  isE4M3(checkpoint, name) && checkpoint.has(scalesOf(name));

/** Names of a checkpoint's tensors without the scales of matrices in fp8, which are read with these. */
export const namesWithoutScales = (checkpoint: Checkpoint): string[] => {
  const scales = new Set(checkpoint.names.filter((name) => isFp8(checkpoint, name)).map(scalesOf));
  return checkpoint.names.filter((name) => !scales.has(name));
};

/** What is wrong with the shapes or dtypes of a matrix in fp8 and its scales. */
export function fp8Fault(checkpoint: Checkpoint, name: string): string | undefined {
  const { shape } = checkpoint.info(name);
  if (shape.length !== 2) return `must be a matrix where it is in fp8, got [${shape.join(", ")}]`;
  const scales = checkpoint.info(scalesOf(name));
  const blocks = shape.map((size) => Math.ceil(size / BLOCK));
  if (scales.shape.join() === blocks.join() && scales.storedDtype === "F32") return undefined;
  const found = `${scales.storedDtype} [${scales.shape.join(", ")}]`;
  return `must have scales F32 [${blocks.join(", ")}], one for each block of ${BLOCK} × ${BLOCK}, got ${found}`;
}

/**
 * A matrix in fp8 as bf16: each number times the scale of its block, in f32, rounded once. As transformers and mlx-lm
 * dequantize DeepSeek-V3's.
 */
export async function readFp8(checkpoint: Checkpoint, name: string): Promise<RawArray> {
  const [rows, cols] = checkpoint.info(name).shape as [number, number];
  const bytes = (await checkpoint.tensor(name).read()) as Uint8Array;
  const scales = (await checkpoint.tensor(scalesOf(name)).read()) as Float32Array;
  const blocks = Math.ceil(cols / BLOCK);
  const values = new Float32Array(rows * cols);
  for (let row = 0, at = 0; row < rows; row++) {
    const begin = Math.floor(row / BLOCK) * blocks;
    for (let col = 0; col < cols; col++, at++)
      values[at] = (E4M3[bytes[at] as number] as number) * (scales[begin + Math.floor(col / BLOCK)] as number);
  }
  return encodeNumbers("bf16", values);
}
