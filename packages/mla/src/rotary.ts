// The frequencies of rotary embeddings with YaRN, and the tables of cosines and sines that `ropeYarn` reads.
import { wrongValue } from "@mlxts/core";

const OP = "yarnRotary";
/** Positions are below this: an i32 and an f32 hold them exactly. */
const MOST_POSITIONS = 2 ** 24;

/** What a checkpoint's config says of its rotary embedding. */
export interface YarnOptions {
  /** Rotated elements of a head, an even number. */
  ropeDim: number;
  /** Elements of a head's query, those that are not rotated too: nope + rope. */
  headDim: number;
  /** θ of the frequencies, `rope_theta`. */
  base: number;
  /** How many times longer than `originalLength` sequences may be; 1 (default) is the embedding without YaRN. */
  factor?: number | undefined;
  /** Tokens that the model was first trained on; required where `factor` is above 1. */
  originalLength?: number | undefined;
  /** Rotations within `originalLength`: pairs with more of them than `betaFast` (32) stay, with fewer than `betaSlow` (1) stretch. */
  betaFast?: number | undefined;
  betaSlow?: number | undefined;
  /** Default 1 and 0. Without `mscaleAllDim` the amplitude has `mscale`, as in mlx-lm; Hugging Face takes 1 then. */
  mscale?: number | undefined;
  mscaleAllDim?: number | undefined;
  /** The amplitude, in place of the one that follows from `mscale`. */
  attentionFactor?: number | undefined;
  /** Whether the borders of the ramp are whole numbers; default true. */
  truncate?: boolean | undefined;
}

export interface Rotary {
  /** The angle of each pair for one position, in radians. */
  readonly inverseFrequencies: Float64Array;
  /** Factor of what is rotated. */
  readonly amplitude: number;
  /** Factor of the scores of attention. */
  readonly softmaxScale: number;
}

const magnitude = (factor: number, mscale: number) => (factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1);

function check(argument: string, fits: boolean, rule: string, value: unknown): void {
  if (!fits) throw wrongValue(OP, argument, rule, value);
}

function checked(options: YarnOptions) {
  const { factor = 1, betaFast = 32, betaSlow = 1, mscale = 1, mscaleAllDim = 0, truncate = true } = options;
  const { ropeDim, headDim, base, originalLength = factor === 1 ? 1 : Number.NaN, attentionFactor } = options;
  check(
    "ropeDim",
    Number.isSafeInteger(ropeDim) && ropeDim >= 2 && ropeDim % 2 === 0,
    "be an even integer ≥ 2",
    ropeDim,
  );
  check("headDim", Number.isSafeInteger(headDim) && headDim >= ropeDim, `be an integer ≥ ${ropeDim}`, headDim);
  check("base", Number.isFinite(base) && base > 1, "be a finite number > 1", base);
  check("factor", Number.isFinite(factor) && factor >= 1, "be a finite number ≥ 1", factor);
  const long = Number.isFinite(originalLength) && originalLength > 0;
  check("originalLength", long, "be a finite number > 0", options.originalLength);
  check("betaSlow", Number.isFinite(betaSlow) && betaSlow > 0, "be a finite number > 0", betaSlow);
  check("betaFast", Number.isFinite(betaFast) && betaFast >= betaSlow, `be a finite number ≥ ${betaSlow}`, betaFast);
  const positive = (name: string, value: number) =>
    check(name, Number.isFinite(value) && value >= 0, "be a finite number ≥ 0", value);
  positive("mscale", mscale);
  positive("mscaleAllDim", mscaleAllDim);
  if (attentionFactor !== undefined) positive("attentionFactor", attentionFactor);
  return {
    ropeDim,
    headDim,
    base,
    factor,
    originalLength,
    betaFast,
    betaSlow,
    mscale,
    mscaleAllDim,
    attentionFactor,
    truncate,
  };
}

/**
 * The frequencies of a rotary embedding, what its results are multiplied by, and the factor of attention's scores, in f64.
 * Pairs that turn often within the original length keep their frequency, those that turn seldom get it divided by
 * `factor`, with a ramp between them. Errors: `InvalidArgument`. Peng et al., "YaRN", 2023.
 */
export function yarnRotary(options: YarnOptions): Rotary {
  const { ropeDim, headDim, base, factor, originalLength, betaFast, betaSlow, ...rest } = checked(options);
  const { mscale, mscaleAllDim, attentionFactor, truncate } = rest;
  /** The pair that turns so many times within the original length. */
  const pairOf = (turns: number) => (ropeDim * Math.log(originalLength / (2 * Math.PI * turns))) / (2 * Math.log(base));
  const [first, last] = [pairOf(betaFast), pairOf(betaSlow)];
  const low = Math.max(truncate ? Math.floor(first) : first, 0);
  let high = Math.min(truncate ? Math.ceil(last) : last, ropeDim - 1);
  if (high === low) high += 0.001;
  const inverseFrequencies = Float64Array.from({ length: ropeDim / 2 }, (_, i) => {
    const kept = base ** ((-2 * i) / ropeDim);
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return (1 - ramp) * kept + (ramp * kept) / factor;
  });
  const all = magnitude(factor, mscaleAllDim);
  const amplitude = attentionFactor ?? magnitude(factor, mscale) / all;
  const softmaxScale = headDim ** -0.5 * all * all;
  // Tables and kernels take both as f32.
  const isF32 = (value: number) => Number.isFinite(Math.fround(value));
  check("mscaleAllDim", isF32(softmaxScale), "give a finite softmaxScale as f32", mscaleAllDim);
  if (attentionFactor === undefined) check("mscale", isF32(amplitude), "give a finite amplitude as f32", mscale);
  else check("attentionFactor", isF32(amplitude), "be finite as f32", attentionFactor);
  return { inverseFrequencies, amplitude, softmaxScale };
}

/**
 * The table of `ropeYarn` for the positions 0 … `rows` − 1: [rows, 2, pairs], cosines and then sines, both times the
 * amplitude. Angles, cosines and sines are f64, rounded once to f32.
 */
export function rotaryTable(
  { inverseFrequencies, amplitude }: Omit<Rotary, "softmaxScale">,
  rows: number,
): Float32Array {
  if (!Number.isSafeInteger(rows) || rows < 1 || rows > MOST_POSITIONS)
    throw wrongValue("rotaryTable", "rows", `be an integer ≥ 1 and ≤ ${MOST_POSITIONS}`, rows);
  const pairs = inverseFrequencies.length;
  const table = new Float32Array(rows * 2 * pairs);
  for (let position = 0; position < rows; position++)
    for (let i = 0; i < pairs; i++) {
      const angle = position * (inverseFrequencies[i] as number);
      table[position * 2 * pairs + i] = amplitude * Math.cos(angle);
      table[(position * 2 + 1) * pairs + i] = amplitude * Math.sin(angle);
    }
  return table;
}
