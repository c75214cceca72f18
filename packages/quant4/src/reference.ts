// MLX affine weights in plain TypeScript: what every device is compared with, and the documentation of the mathematics.

export type Variant = "cpu" | "gpu";

/** Codes → u32 words, low bits first. */
export function packCodes(codes: ArrayLike<number>, bits: number): Float64Array {
  const perWord = 32 / bits;
  const words = new Float64Array(codes.length / perWord);
  for (let i = 0; i < codes.length; i++) {
    const at = Math.floor(i / perWord);
    words[at] = (words[at] as number) + (codes[i] as number) * 2 ** (bits * (i % perWord));
  }
  return words;
}

/** u32 words → codes. */
export function unpackCodes(words: ArrayLike<number>, bits: number): Float64Array {
  const perWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const codes = new Float64Array(words.length * perWord);
  for (let at = 0; at < words.length; at++) {
    const word = words[at] as number;
    for (let i = 0; i < perWord; i++) codes[at * perWord + i] = (word >>> (bits * i)) & mask;
  }
  return codes;
}

function roundEven(x: number): number {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

function roundAway(x: number): number {
  return Math.sign(x) * Math.floor(Math.abs(x) + 0.5);
}

export interface QuantizedNumbers {
  codes: Float64Array;
  scales: Float64Array;
  biases: Float64Array;
}

/** Codes, and scales and biases in f32 before they are rounded to their dtype. Every operation in f32. */
export function quantizeReference(
  w: Float64Array,
  { bits, groupSize, variant }: { bits: number; groupSize: number; variant: Variant },
): QuantizedNumbers {
  const f32 = Math.fround;
  const n = 2 ** bits - 1;
  const round = variant === "gpu" ? roundAway : roundEven;
  const groups = w.length / groupSize;
  const out = {
    codes: new Float64Array(w.length),
    scales: new Float64Array(groups),
    biases: new Float64Array(groups),
  };
  for (let g = 0; g < groups; g++) {
    const group = w.subarray(g * groupSize, (g + 1) * groupSize);
    const min = Math.min(...group);
    const max = Math.max(variant === "gpu" ? 0 : Number.NEGATIVE_INFINITY, ...group);
    let s = Math.max(f32(f32(max - min) / n), f32(1e-7));
    const negative = Math.abs(min) > Math.abs(max);
    if (!negative) s = -s;
    const edge = negative ? min : max;
    const q0 = round(f32(edge / s));
    let b = 0;
    if (q0 !== 0) {
      s = f32(edge / q0);
      b = edge;
    }
    group.forEach((value, i) => {
      const q = round(f32(f32(value - b) / s));
      out.codes[g * groupSize + i] = Math.min(Math.max(q, 0), n);
    });
    out.scales[g] = s;
    out.biases[g] = b;
  }
  return out;
}

/** `f32(f32(q·scale) + bias)`; with 16-bit scales the product is exact. */
export function dequantizeReference(
  words: ArrayLike<number>,
  scales: Float64Array,
  biases: Float64Array,
  { bits, groupSize }: { bits: number; groupSize: number },
): Float64Array {
  return unpackCodes(words, bits).map((q, i) => {
    const g = Math.floor(i / groupSize);
    return Math.fround(Math.fround(q * (scales[g] as number)) + (biases[g] as number));
  });
}

/** `scale·q + bias`, nothing rounded: the weights of the matrix products. */
export function decodeExactly(
  words: ArrayLike<number>,
  scales: Float64Array,
  biases: Float64Array,
  { bits, groupSize }: { bits: number; groupSize: number },
): Float64Array {
  const w = unpackCodes(words, bits);
  for (let g = 0; g * groupSize < w.length; g++) {
    const [scale, bias] = [scales[g] as number, biases[g] as number];
    for (let i = g * groupSize; i < (g + 1) * groupSize; i++) w[i] = (w[i] as number) * scale + bias;
  }
  return w;
}

/** One matrix of [m, rows]: x [m, cols] · Wᵀ; or of [m, cols]: x [m, rows] · W. `w` is [rows, cols]. */
export function productReference(
  x: Float64Array,
  w: Float64Array,
  rows: number,
  cols: number,
  transpose: boolean,
): Float64Array {
  const inner = transpose ? cols : rows;
  const outer = transpose ? rows : cols;
  const m = x.length / inner;
  const y = new Float64Array(m * outer);
  for (let i = 0; i < m; i++) {
    const from = x.subarray(i * inner, (i + 1) * inner);
    const to = y.subarray(i * outer, (i + 1) * outer);
    for (let r = 0; r < rows; r++) {
      const row = w.subarray(r * cols, (r + 1) * cols);
      if (transpose) {
        let sum = 0;
        for (let c = 0; c < cols; c++) sum += (from[c] as number) * (row[c] as number);
        to[r] = sum;
      } else {
        const factor = from[r] as number;
        for (let c = 0; c < cols; c++) to[c] = (to[c] as number) + factor * (row[c] as number);
      }
    }
  }
  return y;
}

/**
 * x as `approximate: "int8-activations"` takes it, in f32: whole numbers of each group's unit, its largest / 127, ties to
 * even. Groups that are not finite, below 2^-100 or from 2^118 on stay as they are.
 */
export function roundToBytes(x: Float64Array, groupSize: number): Float64Array {
  const f32 = Math.fround;
  const out = x.slice();
  for (let first = 0; first < x.length; first += groupSize) {
    const group = out.subarray(first, first + groupSize);
    const largest = Math.max(...group.map(Math.abs));
    if (!(largest >= 2 ** -100 && largest < 2 ** 118)) continue;
    const [unit, inverse] = [f32(largest / 127), f32(127 / largest)];
    for (const [i, value] of group.entries()) group[i] = roundEven(f32(value * inverse)) * unit;
  }
  return out;
}
