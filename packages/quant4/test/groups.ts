import { Random } from "@mlxts/core/testing";

/** Rows that make every branch of the algorithm: mixed signs, one sign, constants, zeros, outliers, ties. */
export function weightRows(rows: number, cols: number, seed: number): Float64Array {
  const random = new Random(seed);
  const data = random.normals(rows * cols, 0.02);
  for (let r = 0; r < rows; r++) {
    const row = data.subarray(r * cols, (r + 1) * cols);
    const kind = r % 8;
    if (kind === 1) for (let c = 0; c < cols; c++) row[c] = -Math.abs(row[c] as number) - 0.01;
    if (kind === 2) for (let c = 0; c < cols; c++) row[c] = Math.abs(row[c] as number) + 0.01;
    if (kind === 3) row.fill(0.5 - r / 16);
    if (kind === 4) row.fill(0);
    if (kind === 5) row[(r * 7) % cols] = r % 16 < 8 ? 3 : -3;
    if (kind === 6) for (let c = 0; c < cols; c++) row[c] = ((c % 32) - 16) / 16;
  }
  return data;
}

/** Random codes, scales of both signs and biases, as u32 words and numbers of about unit rms. */
export function randomQuantized(
  matrices: number,
  rows: number,
  cols: number,
  { bits, groupSize }: { bits: number; groupSize: number },
  seed: number,
): { weight: Float64Array; scales: Float64Array; biases: Float64Array } {
  const random = new Random(seed);
  const weight = random.integers((matrices * rows * cols * bits) / 32, 2 ** 32);
  const groups = (matrices * rows * cols) / groupSize;
  const unit = Math.sqrt(12) / 2 ** bits;
  const scales = random.uniforms(groups, 0.5, 1.5).map((s) => unit * (random.uniform() < 0.5 ? -s : s));
  const biases = scales.map((s) => -s * (2 ** (bits - 1) - 0.5 + 2 * random.normal()));
  return { weight, scales, biases };
}

/** Every row out of reach of the others: a matrix of rows kinds, for a name. */
export const setting = (bits: number, groupSize: number) => `${bits} bits, groups of ${groupSize}`;
