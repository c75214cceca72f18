import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { rope } from "../src/index.ts";
import { ropeReference } from "../src/reference.ts";

const random = new Random(4);

type Pairing = "half" | "interleaved";

interface Arguments {
  x: Float64Array;
  positions: Float64Array;
  frequencies: Float64Array;
  heads: number;
  dim: number;
  pairing: Pairing;
}

function makeCase(
  [batch, tokens, heads, dim]: readonly [number, number, number, number],
  pairs: number,
  pairing: Pairing,
  position: (b: number, t: number) => number = (b, t) => 7 * b + t,
): Case {
  const positions = Float64Array.from({ length: batch * tokens }, (_, i) =>
    position(Math.floor(i / tokens), i % tokens),
  );
  return {
    name: `[${[batch, tokens, heads, dim]}] ${pairs} pairs ${pairing} from ${positions[0]}`,
    inputs: {
      x: {
        dtype: "act",
        shape: [batch, tokens, heads, dim],
        data: random.normals(batch * tokens * heads * dim),
      },
      positions: { dtype: "i32", shape: [batch, tokens], data: positions },
      inverseFrequencies: {
        dtype: "f32",
        shape: [pairs],
        data: Float64Array.from({ length: pairs }, (_, i) => 10000 ** (-i / pairs)),
      },
    },
    options: { pairing },
  };
}

const reference =
  (formula: (a: Arguments) => Float64Array): ReferenceFunction =>
  ({ x, positions, inverseFrequencies }: Record<string, Reference64>, options: { pairing?: Pairing }) => {
    const { shape, data } = x as Reference64;
    return {
      out: {
        shape,
        data: formula({
          x: data,
          positions: (positions as Reference64).data,
          frequencies: (inverseFrequencies as Reference64).data,
          heads: shape[2] as number,
          dim: shape[3] as number,
          pairing: options.pairing ?? "half",
        }),
      },
    };
  };

const right = ({ x, positions, frequencies, dim, pairing }: Arguments) =>
  ropeReference(x, positions, frequencies, dim, pairing);
const changed = (change: (a: Arguments) => Partial<Arguments>) => reference((a) => right({ ...a, ...change(a) }));
/** Another rule for the angle. */
const angled = (angle: (position: number, frequency: number) => number) =>
  reference((a) => {
    const out = Float64Array.from(a.x);
    const stride = a.heads * a.dim;
    a.positions.forEach((position, token) => {
      const turned = a.frequencies.map((f) => angle(position, f));
      out.set(
        right({
          ...a,
          x: a.x.subarray(token * stride, (token + 1) * stride),
          positions: Float64Array.of(1),
          frequencies: turned,
        }),
        token * stride,
      );
    });
    return out;
  });
/** Applied to each head vector by itself. */
const perHead = (f: (head: Float64Array, one: (x: Float64Array) => Float64Array, a: Arguments) => Float64Array) =>
  reference((a) => {
    const out = new Float64Array(a.x.length);
    for (let h = 0; h * a.dim < a.x.length; h++) {
      const positions = Float64Array.of(a.positions[Math.floor(h / a.heads)] as number);
      const one = (x: Float64Array) => right({ ...a, x, positions });
      out.set(f(a.x.subarray(h * a.dim, (h + 1) * a.dim), one, a), h * a.dim);
    }
    return out;
  });

const PAIRINGS = ["half", "interleaved"] as const;

export const suite: Suite = {
  op: rope,
  errorClass: "S",
  reference: reference(right),
  cases: [
    ...PAIRINGS.flatMap((pairing) => [
      ...[1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65, 128].map((pairs) =>
        makeCase([1, 4, Math.ceil(64 / pairs), 2 * pairs], pairs, pairing),
      ),
      makeCase([2, 5, 3, 64], 8, pairing),
      makeCase([1, 300, 4, 64], 8, pairing),
      makeCase([3, 7, 2, 100], 33, pairing),
      makeCase([1, 2, 8, 67], 5, pairing),
      makeCase([1, 1, 8, 256], 32, pairing, () => 4711),
      // More heads and more pairs than a GPU's threadgroup has threads for.
      makeCase([2, 35, 19, 40], 16, pairing),
      makeCase([1, 3, 2, 600], 290, pairing),
      makeCase([1, 2, 4, 128], 64, pairing, (_, t) => (t === 0 ? -(2 ** 31) : 2 ** 31 - 1)),
      makeCase([2, 16, 4, 128], 64, pairing, (b, t) => 131071 - 13 * t - 1000 * b),
      makeCase([2, 16, 4, 128], 64, pairing, (b, t) => -1 - 8009 * t - b),
      makeCase([1, 16, 4, 64], 32, pairing, (_, t) => 2 ** 30 + 12345 * t),
      { ...makeCase([2, 3, 3, 70], 17, pairing), name: `in place ${pairing}`, inPlace: { out: "x" } },
    ]),
  ],
  mutants: {
    "interleaved for half": changed(() => ({ pairing: "interleaved" })),
    "half for interleaved": changed(() => ({ pairing: "half" })),
    "rotated the other way": changed((a) => ({ positions: a.positions.map((v) => -v) })),
    "pairs offset by D / 2 instead of R / 2": perHead((head, one, { frequencies: { length: pairs }, dim, pairing }) => {
      if (pairing !== "half" || dim % 2 !== 0) return one(head);
      // Element pairs + i is taken from, and put back to, dim / 2 + i.
      const moved = Float64Array.from(head);
      for (let i = 0; i < pairs; i++) moved[pairs + i] = head[dim / 2 + i] as number;
      const turned = one(moved);
      const out = Float64Array.from(head);
      for (let i = 0; i < pairs; i++) {
        out[i] = turned[i] as number;
        out[dim / 2 + i] = turned[pairs + i] as number;
      }
      return out;
    }),
    "rotary part at the end": perHead((head, one, { frequencies: { length: pairs }, dim }) => {
      const shift = dim - 2 * pairs;
      const turned = one(head.map((_, i) => head[(i + shift) % dim] as number));
      return head.map((_, i) => turned[(i + dim - shift) % dim] as number);
    }),
    "positions ignored": changed((a) => ({ positions: a.positions.map((_, i) => i) })),
    "positions of the first sequence": changed((a) => ({
      positions: a.positions.map((v, i) =>
        i < a.positions.length / 2 ? v : (a.positions[i - Math.floor(a.positions.length / 2)] as number),
      ),
    })),
    "positions off by one": changed((a) => ({ positions: a.positions.map((v) => v + 1) })),
    "negative positions clamped": changed((a) => ({ positions: a.positions.map((v) => Math.max(v, 0)) })),
    "angle rounded to f32": angled((position, f) => Math.fround(position * f)),
    "position rounded to bf16": angled((position, f) => {
      const unit = 2 ** Math.max(0, Math.floor(Math.log2(Math.abs(position) + 1)) - 7);
      return Math.round(position / unit) * unit * f;
    }),
    "frequencies of the whole head": changed((a) => ({
      frequencies: a.frequencies.map((_, i) => 10000 ** ((-2 * i) / a.dim)),
    })),
    "rest not copied": perHead((head, one, { frequencies }) =>
      one(head).map((v, i) => (i < 2 * frequencies.length ? v : Number.NaN)),
    ),
    "rest set to 0": perHead((head, one, { frequencies }) =>
      one(head).map((v, i) => (i < 2 * frequencies.length ? v : 0)),
    ),
    "last pair not rotated": perHead((head, one, { frequencies, pairing }) => {
      const pairs = frequencies.length;
      const skipped = pairing === "half" ? [pairs - 1, 2 * pairs - 1] : [2 * pairs - 2, 2 * pairs - 1];
      return one(head).map((v, i) => (skipped.includes(i) ? (head[i] as number) : v));
    }),
    "only the first head rotated": reference((a) =>
      right(a).map((v, i) => (Math.floor(i / a.dim) % a.heads === 0 ? v : (a.x[i] as number))),
    ),
    "sine of the rotated value": perHead((head, one, { frequencies, pairing }) => {
      // The second half of a pair computed from the already rotated first half, as a careless in-place loop would.
      const pairs = frequencies.length;
      const turned = one(head);
      for (let i = 0; i < pairs; i++) {
        const first = pairing === "half" ? i : 2 * i;
        const again = Float64Array.from(head);
        again[first] = turned[first] as number;
        const second = pairing === "half" ? i + pairs : 2 * i + 1;
        turned[second] = one(again)[second] as number;
      }
      return turned;
    }),
  },
};
