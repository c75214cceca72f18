import type { FloatDtype } from "../dtype.ts";

/** Error classes and their bars: the one table of limits, rms(err)/rms(ref) for each dtype. Never loosened for a device or for CI. */
export const BARS = {
  /** One rounding at the store. */
  S: { f32: 5e-7, f16: 3.5e-4, bf16: 2.5e-3, spread: 12 },
  /** Two roundings. */
  S2: { f32: 5e-7, f16: 5e-4, bf16: 3.5e-3, spread: 12 },
  /** Long f32 reduction, one rounding. */
  R: { f32: 2e-6, f16: 4e-4, bf16: 2.5e-3, spread: 12 },
  /** Chunk pipeline. */
  P: { f32: 2e-6, f16: 1e-3, bf16: 5e-3, spread: 40 },
  /** Attention over a cache of that dtype. */
  A: { f32: 2e-6, f16: 1e-3, bf16: 7e-3, spread: 40 },
  /** Hard inputs: repeated keys with beta > 1. */
  H: { f32: 2e-5, f16: 5e-3, bf16: 3e-2, spread: 40 },
  /** Compared bit by bit. */
  exact: { f32: 0, f16: 0, bf16: 0, spread: 0 },
} as const satisfies Record<string, Record<FloatDtype | "spread", number>>;

export type ErrorClass = keyof typeof BARS;

export interface Comparison {
  ratio: number;
  maxAbs: number;
  /** rms of the reference. */
  scale: number;
  /** Wherever the reference is finite, so is the output; where it is NaN, the output is NaN. */
  finite: boolean;
}

export function compare(out: ArrayLike<number>, ref: ArrayLike<number>): Comparison {
  if (out.length !== ref.length)
    throw new RangeError(`compare: lengths must be equal, got ${out.length} and ${ref.length}`);
  let error = 0;
  let base = 0;
  let maxAbs = 0;
  let finite = true;
  let count = 0;
  for (let i = 0; i < ref.length; i++) {
    const r = ref[i] as number;
    const o = out[i] as number;
    if (!Number.isFinite(r)) {
      if (!Object.is(o, r)) finite = false;
      continue;
    }
    if (!Number.isFinite(o)) {
      finite = false;
      continue;
    }
    const difference = Math.abs(o - r);
    error += difference * difference;
    base += r * r;
    maxAbs = Math.max(maxAbs, difference);
    count++;
  }
  const n = Math.max(count, 1);
  const scale = Math.sqrt(base / n);
  return { ratio: Math.sqrt(error / n) / Math.max(scale, 1e-30), maxAbs, scale, finite };
}

/** Whether a comparison is within `factor` times the bar. */
export function within({ ratio, maxAbs, scale, finite }: Comparison, bar: number, spread: number, factor = 1): boolean {
  if (!finite) return false;
  if (scale === 0) return maxAbs === 0;
  return ratio <= bar * factor && maxAbs <= Math.max(spread, 1) * bar * factor * scale;
}
