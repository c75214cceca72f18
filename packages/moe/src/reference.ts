// The ops in plain f64: what every device is compared with, and the documentation of the mathematics.

export interface RouteOptions {
  score: "softmax" | "sigmoid";
  topK: number;
  groups?: number;
  topGroups?: number;
  groupScore?: "top2" | "max";
  normalize?: boolean;
  scale?: number;
}

/** Scores and sums are f32 numbers: experts whose scores differ by less are equal. Below 2⁻¹²⁶ they count as 0. */
const f32 = (x: number) => (Math.abs(x) < 2 ** -126 ? 0 : Math.fround(x));

export function scoresOf(logits: Float64Array, score: "softmax" | "sigmoid"): Float64Array {
  if (score === "sigmoid") return logits.map((x) => f32(1 / (1 + Math.exp(-x))));
  const most = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const powers = logits.map((x) => Math.exp(x - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => f32(x / sum));
}

/** The numbers 0 … scores.length − 1, those with the largest scores first, of equal ones the lower first. */
export const bestFirst = (scores: ArrayLike<number>): number[] =>
  Array.from(scores, (_, i) => i).sort((a, b) => {
    const difference = (scores[b] as number) - (scores[a] as number);
    return difference || a - b;
  });

/** How good a group of experts is, by their choice scores. */
export function groupScoreOf(choices: Float64Array, groupScore: "top2" | "max"): number {
  const [first = 0, second] = bestFirst(choices).map((e) => choices[e] as number);
  return groupScore === "max" || second === undefined ? first : f32(first + second);
}

/** The experts of one token, best first, and their weights. */
export function routeReference(
  logits: Float64Array,
  bias: Float64Array | undefined,
  { score, topK, groups = 1, topGroups = 1, groupScore = "top2", normalize = false, scale = 1 }: RouteOptions,
): { indices: number[]; weights: number[] } {
  const scores = scoresOf(logits, score);
  const choices = scores.map((s, e) => f32(s + (bias?.[e] ?? 0)));
  if (choices.some(Number.isNaN))
    return { indices: Array.from({ length: topK }, (_, j) => j), weights: new Array(topK).fill(Number.NaN) };
  const size = choices.length / groups;
  const ofGroups = Array.from({ length: groups }, (_, g) =>
    groupScoreOf(choices.subarray(g * size, (g + 1) * size), groupScore),
  );
  const kept = new Set(bestFirst(ofGroups).slice(0, topGroups));
  const indices = bestFirst(choices)
    .filter((e) => kept.has(Math.floor(e / size)))
    .slice(0, topK);
  const chosen = indices.map((e) => scores[e] as number);
  const divisor = normalize ? chosen.reduce((a, b) => a + b, 0) + 1e-20 : 1;
  return { indices, weights: chosen.map((s) => (s / divisor) * scale) };
}

/** The positions of `indices` by their number, in ascending order; and where each number's positions begin. */
export function orderReference(indices: Float64Array, experts: number): { order: number[]; offsets: number[] } {
  const order: number[] = [];
  const offsets = [0];
  for (let e = 0; e < experts; e++) {
    indices.forEach((index, pair) => {
      if (index === e) order.push(pair);
    });
    offsets.push(order.length);
  }
  return { order, offsets };
}

/** Rows of `dim`: `Σ_j weights[n, j] · y[row of (n, j)] + shared[n] · σ(gate[n]) + residual[n]`. */
export function combineReference(
  { y, weights, order, shared, sharedGate, residual }: Record<string, Float64Array | undefined>,
  topK: number,
  dim: number,
): Float64Array {
  const tokens = (weights as Float64Array).length / topK;
  const rowOf = new Map(Array.from(order ?? [], (pair, row) => [pair, row]));
  const out = new Float64Array(tokens * dim);
  for (let n = 0; n < tokens; n++) {
    const gate = sharedGate ? 1 / (1 + Math.exp(-(sharedGate[n] as number))) : 1;
    for (let i = 0; i < dim; i++) {
      let sum = 0;
      for (let j = 0; j < topK; j++) {
        const pair = n * topK + j;
        const row = order ? (rowOf.get(pair) as number) : pair;
        sum += ((weights as Float64Array)[pair] as number) * ((y as Float64Array)[row * dim + i] as number);
      }
      out[n * dim + i] = sum + (shared?.[n * dim + i] ?? 0) * gate + (residual?.[n * dim + i] ?? 0);
    }
  }
  return out;
}

/** `sum / √(Σsum²/D + eps) · (weight + weightOffset)` over rows of `weight.length`; `round` stands before the weight. */
export function normReference(
  sum: Float64Array,
  weight: Float64Array,
  { eps = 1e-6, weightOffset = 0 }: { eps?: number; weightOffset?: number },
  round: (value: number) => number = (value) => value,
): Float64Array {
  const dim = weight.length;
  const out = new Float64Array(sum.length);
  for (let start = 0; start < sum.length; start += dim) {
    const squares = sum.subarray(start, start + dim).reduce((a, v) => a + v * v, 0);
    const inverse = 1 / Math.sqrt(squares / dim + eps);
    for (let i = 0; i < dim; i++)
      out[start + i] = round((sum[start + i] as number) * inverse) * ((weight[i] as number) + weightOffset);
  }
  return out;
}

/** Which experts are kept after a call, by age; which were chosen; which go, of equal ages the lower index first. */
export function keepReference(
  indices: Float64Array,
  ages: Float64Array,
  keep: number,
): { aged: Float64Array; chosen: Float64Array; evicted: Float64Array } {
  const chosen = ages.map((_, e) => (indices.includes(e) ? 1 : 0));
  const aged = ages.map((age, e) => (chosen[e] ? 1 : age === 0 ? 0 : Math.min(age + 1, 0xffffffff)));
  const kept = bestFirst(aged).filter((e) => aged[e]);
  const gone = new Set(kept.slice(0, Math.max(0, kept.length - keep)));
  return {
    aged: aged.map((age, e) => (gone.has(e) ? 0 : age)),
    chosen,
    evicted: aged.map((_, e) => (gone.has(e) ? 1 : 0)),
  };
}

/** Bytes of each chosen expert, all of which are in memory. */
export const pagesReference = (chosen: Float64Array, expertBytes: number): Float64Array =>
  chosen.map((flag) => (flag ? expertBytes : 0));
