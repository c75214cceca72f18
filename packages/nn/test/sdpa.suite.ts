import { roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { sdpa } from "../src/index.ts";
import { type AttentionSizes, sdpaReference } from "../src/reference_sdpa.ts";

const random = new Random(5);

interface Shape {
  T?: number;
  H?: number;
  Hkv?: number;
  D?: number;
  lengths: readonly number[];
  capacity?: number;
  causal?: boolean;
  scale?: number;
  cache?: CaseInput["dtype"];
  dtypes?: Case["dtypes"];
  name?: string;
  /** Changes the finished inputs. */
  edit?: (data: { q: Float64Array; k: Float64Array; v: Float64Array }, sizes: AttentionSizes) => void;
}

/** Rows from lengths[b] on are NaN. */
function makeCase(shape: Shape): Case {
  const { T = 1, H = 1, Hkv = H, D = 32, lengths, causal, scale, cache = "act" } = shape;
  const B = lengths.length;
  const capacity = shape.capacity ?? Math.max(...lengths, T) + 3;
  const q = random.normals(B * T * H * D);
  const rows = () => {
    const data = new Float64Array(B * Hkv * capacity * D).fill(Number.NaN);
    for (let b = 0; b < B; b++)
      for (let h = 0; h < Hkv; h++) data.set(random.normals((lengths[b] as number) * D), (b * Hkv + h) * capacity * D);
    return data;
  };
  const data = { q, k: rows(), v: rows() };
  shape.edit?.(data, { B, T, H, Hkv, D, capacity });
  const options = { ...(causal === undefined ? {} : { causal }), ...(scale === undefined ? {} : { scale }) };
  return {
    name: `T ${T} H ${H}/${Hkv} D ${D} lengths ${lengths} of ${capacity} cache ${cache} ${JSON.stringify(options)} ${shape.name ?? ""}`,
    inputs: {
      q: { dtype: "act", shape: [B, T, H, D], data: q },
      kCache: { dtype: cache, shape: [B, Hkv, capacity, D], data: data.k },
      vCache: { dtype: cache, shape: [B, Hkv, capacity, D], data: data.v },
      lengths: { dtype: "i32", shape: [B], data: lengths },
    },
    options,
    ...(shape.dtypes ? { dtypes: shape.dtypes } : {}),
  };
}

interface Problem {
  q: Float64Array;
  k: Float64Array;
  v: Float64Array;
  lengths: Float64Array;
  sizes: AttentionSizes;
  options: { scale?: number; causal?: boolean };
}
const reference =
  (formula: (problem: Problem) => Float64Array): ReferenceFunction =>
  (inputs, options) => {
    const { q, kCache, vCache, lengths } = inputs as Record<"q" | "kCache" | "vCache" | "lengths", Reference64>;
    const [B, T, H, D] = q.shape as [number, number, number, number];
    const [, Hkv, capacity] = kCache.shape as [number, number, number];
    const sizes = { B, T, H, Hkv, D, capacity };
    return {
      out: {
        shape: q.shape,
        data: formula({ q: q.data, k: kCache.data, v: vCache.data, lengths: lengths.data, sizes, options }),
      },
    };
  };
const right = ({ q, k, v, lengths, sizes, options }: Problem) => sdpaReference(q, k, v, lengths, sizes, options);
/** The right formula on changed arguments. */
const changed = (change: (problem: Problem) => Partial<Problem>) =>
  reference((problem) => right({ ...problem, ...change(problem) }));
const scaled = (factor: (D: number) => number) =>
  changed(({ sizes, options }) => ({
    options: { ...options, scale: (options.scale ?? sizes.D ** -0.5) * factor(sizes.D) },
  }));

/** Attention written with every choice a wrong kernel may make. */
interface Choices {
  visible?: (length: number, T: number, i: number, causal: boolean, capacity: number) => number;
  head?: (h: number, H: number, Hkv: number) => number;
  base?: (top: number) => number;
  round?: (value: number) => number;
  /** Rows that are skipped though visible. */
  skip?: (t: number, visible: number) => boolean;
  /** Invisible rows get weight 0 and are multiplied all the same. */
  multiplyAll?: boolean;
  empty?: number;
}
const wrong = (choices: Choices) =>
  reference(({ q, k, v, lengths, sizes: { B, T, H, Hkv, D, capacity }, options }) => {
    const { scale = D ** -0.5, causal = true } = options;
    const round = choices.round ?? ((x: number) => x);
    const out = new Float64Array(q.length);
    for (let b = 0; b < B; b++)
      for (let i = 0; i < T; i++)
        for (let h = 0; h < H; h++) {
          const length = lengths[b] as number;
          const visible = choices.visible
            ? Math.min(capacity, Math.max(0, choices.visible(length, T, i, causal, capacity)))
            : causal
              ? length - T + i + 1
              : length;
          const row = ((b * T + i) * H + h) * D;
          if (visible <= 0) {
            out.fill(choices.empty ?? 0, row, row + D);
            continue;
          }
          const cache =
            (b * Hkv + (choices.head ?? ((x: number) => Math.floor((x * Hkv) / H)))(h, H, Hkv)) * capacity * D;
          const scores = new Float64Array(visible);
          for (let t = 0; t < visible; t++) {
            let sum = 0;
            for (let d = 0; d < D; d++) sum = round(sum + (q[row + d] as number) * (k[cache + t * D + d] as number));
            scores[t] = choices.skip?.(t, visible) ? Number.NEGATIVE_INFINITY : sum * scale;
          }
          const top = scores.reduce((a, s) => Math.max(a, s), Number.NEGATIVE_INFINITY);
          const weights = scores.map((s) => Math.exp(s - (choices.base ?? ((x: number) => x))(top)));
          const total = weights.reduce((a, w) => a + w, 0);
          for (let d = 0; d < D; d++) {
            let sum = 0;
            for (let t = 0; t < (choices.multiplyAll ? capacity : visible); t++)
              sum = round(sum + (weights[t] ?? 0) * (v[cache + t * D + d] as number));
            out[row + d] = sum / total;
          }
        }
    return out;
  });

const LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000];
export const suite: Suite = {
  op: sdpa,
  errorClass: "A",
  reference: reference(right),
  cases: [
    // Extreme and equal scores.
    ...[
      { T: 1, D: 32 },
      { T: 1, D: 128 },
      { T: 70, D: 32 },
      { T: 70, D: 128 },
    ].flatMap(({ T, D }) => [
      makeCase({
        T,
        D,
        H: 8,
        Hkv: 4,
        lengths: [150],
        name: "one score far above the rest",
        edit: ({ q, k }, { H, Hkv, D, capacity }) => {
          for (let h = 0; h < Hkv; h++) k.fill(100, (h * capacity + 40) * D, (h * capacity + 41) * D);
          for (let i = 0; i < T * H; i++) for (let d = 0; d < D; d++) q[i * D + d] = 16 + (q[i * D + d] as number) / 8;
        },
      }),
      makeCase({
        T,
        D,
        H: 8,
        Hkv: 4,
        lengths: [150],
        name: "all scores equal",
        edit: ({ k }) => {
          for (let i = 0; i < k.length; i++) if (!Number.isNaN(k[i])) k[i] = 1;
        },
      }),
      makeCase({
        T,
        D,
        H: 4,
        lengths: [150],
        name: "scores beyond 10⁹",
        edit: ({ q, k }, { H, D, capacity }) => {
          for (let h = 0; h < H; h++)
            for (const t of [20, 70]) k.fill(30000, (h * capacity + t) * D, (h * capacity + t + 1) * D);
          q.fill(30000);
        },
      }),
      makeCase({
        T,
        D,
        H: 4,
        lengths: [150],
        name: "first scores −∞",
        edit: ({ q, k }, { H, D, capacity }) => {
          for (let h = 0; h < H; h++) for (let t = 0; t < 66; t++) k[(h * capacity + t) * D] = Number.NEGATIVE_INFINITY;
          for (let i = 0; i < q.length; i += D) q[i] = 1 + Math.abs(q[i] as number);
        },
      }),
      makeCase({
        T,
        D,
        H: 4,
        lengths: [290],
        name: "scores that rise along the keys",
        edit: ({ k }, { H, D, capacity }) => {
          for (let i = 0; i < H * capacity * D; i++)
            k[i] = (k[i] as number) * (1 + (Math.floor(i / D) % capacity) / 16);
        },
      }),
    ]),
    // Sequences of different lengths; nothing visible.
    ...[false, true].flatMap((causal) => [
      makeCase({ T: 1, H: 8, Hkv: 2, lengths: causal ? [1, 700, 130] : [0, 1, 700, 130], causal }),
      makeCase({ T: 3, H: 8, Hkv: 2, lengths: causal ? [3, 300, 130] : [0, 1, 300, 130], causal }),
      makeCase({ T: 70, H: 4, Hkv: 2, lengths: causal ? [70, 150] : [0, 1, 150], causal }),
    ]),
    // Head sizes, odd ones too.
    ...[1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 80, 96, 127, 128, 129, 192, 256, 300].flatMap((D) => [
      makeCase({ T: 1, H: 20, Hkv: 4, D, lengths: [70, 9] }),
      makeCase({ T: 70, H: 2, Hkv: 1, D, lengths: [80] }),
    ]),
    // One token: all lengths around the blocks and pieces.
    ...LENGTHS.map((length) => makeCase({ H: 8, Hkv: 2, D: 64, lengths: [length] })),
    ...[4095, 4096, 4097, 8193].map((length) => makeCase({ H: 16, Hkv: 1, D: 32, lengths: [length], dtypes: ["f32"] })),
    makeCase({ H: 16, Hkv: 1, D: 16, lengths: [33000], dtypes: ["f32"] }),
    makeCase({ H: 8, Hkv: 4, D: 128, lengths: [300], capacity: 1500 }),
    // Rows that NVIDIA's GPUs multiply by matrix units: lengths around their steps of eight keys, more than one step.
    ...[128, 256].flatMap((D) => [
      ...[1, 7, 8, 9, 63, 64, 65, 300].map((length) => makeCase({ H: 4, D, lengths: [length], Hkv: 1 })),
      makeCase({ H: 24, Hkv: 2, D, lengths: [70, 5] }),
      makeCase({ T: 2, H: 10, Hkv: 2, D, lengths: [66] }),
      makeCase({ T: 5, H: 3, Hkv: 1, D, lengths: [130, 5], causal: false }),
    ]),
    makeCase({ H: 2, Hkv: 1, D: 128, lengths: [8300], dtypes: ["f16", "bf16"] }),
    // Few tokens.
    ...[2, 3, 5, 8, 16].flatMap((T) =>
      [T, T + 1, 64, 130].map((length) => makeCase({ T, H: 4, Hkv: 2, D: 48, lengths: [length] })),
    ),
    // Caches filled to the last row.
    makeCase({ H: 8, Hkv: 2, D: 96, lengths: [70, 70], capacity: 70 }),
    makeCase({ T: 70, H: 2, Hkv: 1, D: 96, lengths: [70], capacity: 70 }),
    // The first tokens do not see the last piece.
    makeCase({ T: 12, H: 5, Hkv: 1, D: 40, lengths: [68, 140] }),
    // Many tokens.
    ...[65, 66, 70, 127, 130, 200].map((T) => makeCase({ T, H: 2, Hkv: 1, D: 64, lengths: [T] })),
    ...[65, 128, 200, 700].map((length) => makeCase({ T: 65, H: 2, Hkv: 2, D: 24, lengths: [length] })),
    makeCase({ T: 300, H: 4, Hkv: 1, D: 16, lengths: [300] }),
    ...[127, 128, 129, 191, 192, 193, 300].map((length) =>
      makeCase({ T: 65, H: 2, Hkv: 1, D: 128, lengths: [length] }),
    ),
    makeCase({ T: 70, H: 2, Hkv: 2, D: 128, lengths: [0, 1, 200], causal: false }),
    makeCase({ T: 70, H: 2, Hkv: 2, D: 128, lengths: [70, 200] }),
    makeCase({ T: 150, H: 1, D: 128, lengths: [500] }),
    makeCase({ T: 33, H: 12, Hkv: 2, D: 16, lengths: [100] }),
    makeCase({ T: 600, H: 1, D: 8, lengths: [601] }),
    // Sharing of heads.
    ...[
      [1, 1],
      [2, 2],
      [3, 1],
      [5, 1],
      [6, 2],
      [12, 4],
      [16, 2],
      [32, 1],
      [130, 1],
    ].flatMap(([H, Hkv]) => [
      makeCase({ T: 1, H: H as number, Hkv: Hkv as number, D: 32, lengths: [40, 41, 3, 17, 30, 29, 5, 33, 32] }),
      makeCase({ T: 9, H: H as number, Hkv: Hkv as number, D: 32, lengths: [40] }),
    ]),
    // The cache's own dtype.
    ...(["f32", "f16", "bf16"] as const).flatMap((cache) => [
      makeCase({ T: 1, H: 8, Hkv: 2, D: 72, lengths: [200], cache }),
      makeCase({ T: 80, H: 2, Hkv: 2, D: 72, lengths: [100], cache }),
    ]),
    // Scales.
    ...[1e-40, 0.01, 1, 3].flatMap((scale) => [
      makeCase({ H: 16, Hkv: 2, D: 16, lengths: [90], scale }),
      makeCase({ T: 80, H: 2, D: 16, lengths: [90], scale }),
    ]),
    // The last row is NaN: earlier queries do not see it.
    ...[
      { T: 2, D: 32 },
      { T: 3, D: 32 },
      { T: 3, D: 256 },
      { T: 70, D: 32 },
      { T: 70, D: 128 },
    ].flatMap(({ T, D }) =>
      [1, 3].map((share) =>
        makeCase({
          T,
          D,
          H: 2 * share,
          Hkv: 2,
          lengths: [T + 60],
          name: "last row NaN",
          edit: ({ k, v }, { Hkv, D, capacity }) => {
            for (let h = 0; h < Hkv; h++) {
              k.fill(Number.NaN, (h * capacity + T + 59) * D, (h * capacity + T + 60) * D);
              v.fill(Number.NaN, (h * capacity + T + 59) * D, (h * capacity + T + 60) * D);
            }
          },
        }),
      ),
    ),
    // Values that are not finite, in a row that later queries see: in their columns alone.
    ...[40, 100, 128, 160].map((D) =>
      makeCase({
        T: 70,
        H: 3,
        Hkv: 1,
        D,
        lengths: [100],
        name: "values not finite",
        edit: ({ v }) => {
          v[60 * D + 1] = Number.NaN;
          v[60 * D + D - 3] = Number.POSITIVE_INFINITY;
        },
      }),
    ),
  ],
  mutants: {
    "scale missing": scaled((D) => Math.sqrt(D)),
    "scale twice": scaled((D) => 1 / Math.sqrt(D)),
    "strict mask": wrong({ visible: (length, T, i, causal) => (causal ? length - T + i : length) }),
    "mask one row late": wrong({
      visible: (length, T, i, causal) => Math.min(length, causal ? length - T + i + 2 : length),
    }),
    "not causal": changed(({ options }) => ({ options: { ...options, causal: false } })),
    "always causal": changed(({ options }) => ({ options: { ...options, causal: true } })),
    "query positions from 0": wrong({ visible: (length, _, i, causal) => (causal ? Math.min(length, i + 1) : length) }),
    "length ignored": wrong({ visible: (_, T, i, causal, capacity) => (causal ? capacity - T + i + 1 : capacity) }),
    "length of sequence 0 for all": changed(({ lengths, sizes: { T } }) => ({
      lengths: lengths.map(() => Math.max(T, lengths[0] as number)),
    })),
    "heads tiled over key/value heads": wrong({ head: (h, _, Hkv) => h % Hkv }),
    "key/value head 0 for all": wrong({ head: () => 0 }),
    "softmax without the maximum": wrong({ base: () => 0 }),
    "invisible rows times 0": wrong({ multiplyAll: true }),
    "nothing visible left unwritten": wrong({ empty: Number.NaN }),
    "first row skipped": wrong({ skip: (t, visible) => t === 0 && visible > 1 }),
    "last row skipped": wrong({ skip: (t, visible) => t === visible - 1 && visible > 1 }),
    "last partial block skipped": wrong({ skip: (t, visible) => visible > 64 && t >= visible - (visible % 64) }),
    "only the last 128 rows": wrong({ skip: (t, visible) => t < visible - 128 }),
    "pieces after the first dropped": wrong({ skip: (t) => t >= 128 }),
    "sums in f16": wrong({ round: (x) => roundTo("f16", x) }),
    "sums in bf16": wrong({ round: (x) => roundTo("bf16", x) }),
    "keys and values swapped": changed(({ k, v }) => ({ k: v, v: k })),
    "tail of the head dimension skipped in scores": changed(({ k, sizes: { D } }) => ({
      k: k.map((value, i) => (D > 4 && i % D >= D - (D % 4) ? 0 : value)),
    })),
    "output left unwritten": reference(({ q }) => q.map(() => Number.NaN)),
  },
};
