// What tells a right layer from wrong ones on a recorded layer of a tiny DeepSeek-V3: the plain reference agrees with the
// recording within the bar of goldens.test.ts, and wrong frequencies, scales, weights, masks and caches do not.
import { compare } from "@mlxts/core/testing";
import { goldens } from "@mlxts/test-kit/goldens";
import { expect, it } from "vitest";
import { yarnRotary } from "../src/index.ts";
import { columnsReference, ropeYarnReference } from "../src/reference.ts";
import { type DecompressedAttention, decompressedReference } from "../src/reference_attention.ts";

const BAR = 2e-6;
const recorded = goldens("goldens/mla_layer.safetensors");
const shapeOf = (name: string) => recorded.tensor(name).shape as number[];
const [TOKENS, H, HEAD_DIM] = shapeOf("q") as [number, number, number];
const [R, ROPE, V] = [shapeOf("latent")[1], shapeOf("k_pe")[1], shapeOf("out")[2]] as [number, number, number];
const NOPE = HEAD_DIM - ROPE;
const [BASE, FACTOR, PAIRS] = [1e4, 4, ROPE / 2];
/** The last ones, whose outputs are compared. */
const QUERIES = 16;
const given = { ropeDim: ROPE, headDim: HEAD_DIM, base: BASE, originalLength: 1024, mscale: 1, mscaleAllDim: 1 };
const yarn = yarnRotary({ ...given, factor: FACTOR });
/** M of the scale: that is M²/√d. */
const M = Math.sqrt(yarn.softmaxScale * Math.sqrt(HEAD_DIM));
const frequencies = (of: (pair: number) => number) => Float64Array.from({ length: PAIRS }, (_, pair) => of(pair));

interface Wrong {
  inverse?: Float64Array;
  amplitude?: number;
  pairing?: "half";
  /** Added to the positions of queries. */
  late?: number;
  sign?: number;
  kPe?: (rows: Float64Array) => Float64Array;
  attention?: (problem: DecompressedAttention) => Partial<DecompressedAttention>;
}

function layer(wrong: Wrong = {}): Float64Array {
  const { inverse = yarn.inverseFrequencies, amplitude = yarn.amplitude, pairing = "interleaved", sign = 1 } = wrong;
  const first = TOKENS - QUERIES;
  const rotated = (x: Float64Array, dim: number, position: (row: number) => number) => {
    const angle = (row: number, pair: number) => position(row) * (inverse[pair] as number);
    const cosine = (row: number, pair: number) => amplitude * Math.cos(angle(row, pair));
    const sine = (row: number, pair: number) => sign * amplitude * Math.sin(angle(row, pair));
    return ropeYarnReference(x, dim, dim - ROPE, PAIRS, pairing, cosine, sine);
  };
  const q = recorded.numbers("q").subarray(first * H * HEAD_DIM);
  const kPe = recorded.numbers("k_pe");
  const problem: DecompressedAttention = {
    qNope: columnsReference(q, HEAD_DIM, 0, NOPE),
    qPe: rotated(q, HEAD_DIM, (row) => first + Math.floor(row / H) + (wrong.late ?? 0)),
    latents: recorded.numbers("latent"),
    keys: rotated(wrong.kPe?.(kPe) ?? kPe, ROPE, (row) => row),
    weight: recorded.numbers("kv_b"),
    lengths: [TOKENS],
    sizes: { N: 1, L: QUERIES, H, R, rope: ROPE, capacity: TOKENS, nope: NOPE, v: V },
    scale: yarn.softmaxScale,
  };
  return decompressedReference({ ...problem, ...wrong.attention?.(problem) });
}
const last = recorded.numbers("out").subarray((TOKENS - QUERIES) * H * V);

/** The weight with its rows in other places: row `row` of a head is `from(head, row)` of all. */
const rowsFrom =
  (from: (head: number, row: number) => number) =>
  ({ weight }: DecompressedAttention) => ({
    weight: weight.map((_, i) => {
      const [head, row] = [Math.floor(i / R / (NOPE + V)), Math.floor(i / R) % (NOPE + V)];
      return weight[(from(head, row) * R + (i % R)) % weight.length] as number;
    }),
  });
/** Rows of a cache, each where the next one belongs. */
const late = (rows: Float64Array, columns: number) =>
  rows.map((_, i) => (i < columns ? 0 : (rows[i - columns] as number)));
const normed = (rows: Float64Array) =>
  rows.map((x, i) => {
    const row = rows.subarray(i - (i % ROPE), i - (i % ROPE) + ROPE);
    return x / Math.sqrt(row.reduce((a, v) => a + v * v, 0) / ROPE);
  });

const WRONG: Record<string, Wrong> = {
  "no M²": { attention: ({ scale }) => ({ scale: scale / M ** 2 }) },
  "one M": { attention: ({ scale }) => ({ scale: scale / M }) },
  "M on what is rotated, too": { amplitude: M },
  "frequencies of a longer base": {
    inverse: frequencies((pair) => {
      const kept = BASE ** ((-2 * pair) / ROPE);
      const ramp = (kept - (yarn.inverseFrequencies[pair] as number)) / (kept - kept / FACTOR);
      return (1 - ramp) * kept + ramp * (FACTOR * BASE) ** ((-2 * pair) / ROPE);
    }),
  },
  "frequencies without YaRN": { inverse: frequencies((pair) => BASE ** ((-2 * pair) / ROPE)) },
  "all frequencies divided": { inverse: frequencies((pair) => BASE ** ((-2 * pair) / ROPE) / FACTOR) },
  "halves paired": { pairing: "half" },
  "the sine's sign": { sign: -1 },
  "queries one position late": { late: 1 },
  "no mask": { attention: () => ({ causal: false }) },
  "rotated part dropped": { attention: ({ qPe }) => ({ qPe: qPe.map(() => 0) }) },
  "scale of the columns without position": {
    attention: ({ scale }) => ({ scale: scale * Math.sqrt(HEAD_DIM / NOPE) }),
  },
  "keys and values swapped": {
    attention: rowsFrom((head, row) => head * (NOPE + V) + ((row + V) % (NOPE + V))),
  },
  "all rows of keys, then all of values": {
    attention: rowsFrom((head, row) => (row < NOPE ? head * NOPE + row : H * NOPE + head * V + row - NOPE)),
  },
  "rows of the next head": { attention: rowsFrom((head, row) => (head + 1) * (NOPE + V) + row) },
  "rows of a head as many as q has columns": { attention: rowsFrom((head, row) => head * HEAD_DIM + row) },
  "only the last 128 rows": { attention: () => ({ skip: (t, visible) => t < visible - 128 }) },
  "first row skipped": { attention: () => ({ skip: (t) => t === 0 }) },
  "last row skipped": { attention: () => ({ skip: (t, visible) => t === visible - 1 }) },
  "rows appended one too late": {
    attention: ({ latents, keys }) => ({ latents: late(latents, R), keys: late(keys, ROPE) }),
  },
  "rotated keys normed": { kPe: normed },
};

it("the plain reference gives the recorded outputs", () => {
  expect(compare(layer(), last).ratio).toBeLessThan(BAR);
});

it.each(Object.keys(WRONG))("%s: not the recorded outputs", (name) => {
  expect(compare(layer(WRONG[name]), last).ratio).toBeGreaterThan(50 * BAR);
});

it("outputs of the token before are not the recorded ones", () => {
  const all = recorded.numbers("out");
  const stale = all.subarray((TOKENS - QUERIES - 1) * H * V, (TOKENS - 1) * H * V);
  expect(compare(stale, last).ratio).toBeGreaterThan(50 * BAR);
});
