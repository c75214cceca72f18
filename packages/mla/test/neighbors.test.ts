// A sequence's result has the same bits beside any other sequences, whatever their number and lengths, and in a cache of any
// capacity.
import type { Device, FloatDtype, Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { mlaAttention, mlaDecode, mlaOut, mlaPrefill, mlaQPrime } from "../src/index.ts";
import type { Quantized } from "../src/signatures.ts";

const random = new Random(47);
const [H, NOPE, ROPE, V, R] = [2, 32, 8, 24, 160];
const OPTIONS = { nope: NOPE, softmaxScale: (NOPE + ROPE) ** -0.5 };

const normals = (...shape: number[]) => [...random.normals(shape.reduce((a, b) => a * b, 1))];

/** Weights of heads in the forms that an op takes; which of them, and of which dtype. */
const WEIGHTS = ["dense", "dense parts", "4 bits", "8 bits", "4 bits, parts"] as const;
function makeWeights(kind: (typeof WEIGHTS)[number], dtype: FloatDtype) {
  const [, digits] = /^(4|8) bits/.exec(kind) ?? [];
  const bits = digits === "4" ? 4 : 8;
  const make = (...shape: [...number[], number]): ((device: Device) => Tensor | Quantized) => {
    if (!digits) {
      const data = normals(...shape).map((x) => x * R ** -0.5);
      return (device) => device.tensor(dtype, shape, data);
    }
    const [lead, cols] = [shape.slice(0, -1), shape.at(-1) as number];
    const size = shape.reduce((a, b) => a * b, 1);
    const words = random.integers((size * bits) / 32, 2 ** 32);
    const scales = random.uniforms(size / 32, 0.01, 0.02);
    const biases = scales.map((scale) => -scale * 2 ** (bits - 1));
    return (device) => ({
      weight: device.tensor("u32", [...lead, (cols * bits) / 32], words),
      scales: device.tensor(dtype, [...lead, cols / 32], scales),
      biases: device.tensor(dtype, [...lead, cols / 32], biases),
      bits,
      groupSize: 32,
      mode: "affine",
    });
  };
  if (!kind.endsWith("parts")) {
    const kvB = make(H * (NOPE + V), R);
    return (device: Device) => ({ kvB: kvB(device) });
  }
  const [embedQ, unembedOut] = [make(H, R, NOPE), make(H, V, R)];
  return (device: Device) => ({ embedQ: embedQ(device), unembedOut: unembedOut(device) });
}

/** Numbers of one sequence: q and qPe of its L tokens, and the rows of its cache. */
interface Sequence {
  length: number;
  q: number[];
  qPe: number[];
  latents: number[];
  keys: number[];
}
const makeSequence = (length: number, L: number): Sequence => ({
  length,
  q: normals(L, H, NOPE),
  qPe: normals(L, H, ROPE),
  latents: normals(length, R),
  keys: normals(length, ROPE),
});

function tensorsOf(device: Device, dtype: FloatDtype, sequences: readonly Sequence[], L: number) {
  const N = sequences.length;
  const capacity = Math.max(...sequences.map(({ length }) => length));
  const joined = (of: (sequence: Sequence) => number[], ...shape: number[]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    const data = new Float64Array(N * size).fill(Number.NaN);
    for (const [n, sequence] of sequences.entries()) data.set(of(sequence), n * size);
    return device.tensor(dtype, [N, ...shape], data);
  };
  return {
    q: joined(({ q }) => q, L, H, NOPE),
    qPe: joined(({ qPe }) => qPe, L, H, ROPE),
    latentCache: joined(({ latents }) => latents, capacity, R),
    kPeCache: joined(({ keys }) => keys, capacity, ROPE),
    lengths: device.tensor(
      "i32",
      [N],
      sequences.map(({ length }) => length),
    ),
  };
}
type Layer = ReturnType<typeof tensorsOf> & ReturnType<ReturnType<typeof makeWeights>>;

/** [name, lengths of the sequences, new tokens of each]: few tokens for a sequence, but many for all; and many for each. */
const BATCHES: readonly (readonly [name: string, lengths: readonly number[], L: number])[] = [
  ["9 sequences of 1 token", [5, 1, 70, 2, 64, 129, 17, 33, 8], 1],
  ["3 sequences of 3 tokens", [3, 140, 65], 3],
  ["2 sequences of very different lengths, 2 tokens", [2, 1300], 2],
  ["4 sequences of 8 tokens", [8, 20, 150, 9], 8],
  ["34 sequences of 1 token", Array.from({ length: 34 }, (_, n) => 1 + ((7 * n) % 40)), 1],
  ["3 sequences of 9 tokens", [9, 70, 30], 9],
  ["2 sequences of 40 tokens", [40, 133], 40],
];

describe.each(DEVICES)("on %s", (name, open) => {
  const device = open();
  afterAll(() => device.dispose());
  // The simulator is slow.
  const simulated = name === "metal";
  const batches = simulated ? BATCHES.filter(([, lengths, L]) => lengths.length * L < 28) : BATCHES;
  const dtypes = simulated ? (["f32", "bf16"] as const) : (["f32", "f16", "bf16"] as const);
  const kinds = simulated ? (["dense", "4 bits", "4 bits, parts"] as const) : WEIGHTS;

  /** Runs all of `ops` over the sequences together, then over each alone. */
  async function expectAlone(
    sequences: readonly Sequence[],
    L: number,
    dtype: FloatDtype,
    weights: (device: Device) => object,
    ops: Record<string, (layer: Layer) => Promise<Tensor>>,
  ) {
    const own = weights(device);
    const outsOf = async (given: readonly Sequence[]) => {
      const layer = { ...tensorsOf(device, dtype, given, L), ...own } as Layer;
      const outs: [string, Float64Array][] = [];
      for (const [op, run] of Object.entries(ops)) outs.push([op, await (await run(layer)).readNumbers()]);
      return outs;
    };
    const together = await outsOf(sequences);
    for (const [n, sequence] of sequences.entries())
      for (const [at, [op, out]] of (await outsOf([sequence])).entries()) {
        const all = together[at]?.[1] as Float64Array;
        expect(out.every(Number.isFinite)).toBe(true);
        expect(all.slice(n * out.length, (n + 1) * out.length), `${op}, sequence ${n}`).toEqual(out);
      }
  }

  const prefill = (form: "auto" | "folded" | "materialized", outDtype?: "f32") => async (layer: Layer) => {
    const encoder = device.encoder();
    const { out } = mlaPrefill(encoder, layer, { ...OPTIONS, form, outDtype });
    await encoder.commit();
    return out;
  };
  const decode = (outDtype?: "f32") => async (layer: Layer) => {
    const encoder = device.encoder();
    const { out } = mlaDecode(encoder, layer, { ...OPTIONS, outDtype });
    await encoder.commit();
    return out;
  };
  /** The ops that a layer is made of, one by one. */
  const chained = async ({ q, kvB, embedQ, unembedOut, ...cached }: Layer & Record<string, Tensor | Quantized>) => {
    const encoder = device.encoder();
    const queries = mlaQPrime(encoder, { q, kvB, embedQ } as Parameters<typeof mlaQPrime>[1], { nope: NOPE });
    const { vc } = mlaAttention(encoder, { ...cached, queries }, { softmaxScale: OPTIONS.softmaxScale });
    const out = mlaOut(encoder, { vc, kvB, unembedOut } as Parameters<typeof mlaOut>[1], { v: V });
    await encoder.commit();
    return out;
  };

  const forms = {
    // Roundings of the result hide most differences.
    "mlaDecode to f32": decode("f32"),
    "mlaPrefill materialized": prefill("materialized", "f32"),
  };
  const all = {
    ...forms,
    mlaDecode: decode(),
    "mlaPrefill auto": prefill("auto", "f32"),
    "mlaPrefill folded": prefill("folded", "f32"),
    "the ops of a layer": chained as (layer: Layer) => Promise<Tensor>,
  };

  describe.each(batches)("%s", (_, lengths, L) => {
    it.each(dtypes.flatMap((dtype) => kinds.map((kind) => [dtype, kind] as const)))(
      "%s, weights %s",
      async (dtype, kind) => {
        const sequences = lengths.map((length) => makeSequence(length, L));
        await expectAlone(sequences, L, dtype, makeWeights(kind, dtype), simulated ? forms : all);
      },
    );
  });
});
