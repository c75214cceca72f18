// Fused ops have the bits of the ops that they stand for. Sums and products of two tensors are made here: a sum of two
// f32 in f64, rounded to f32, is the rounded sum, and so is a product. `models` has the chain that begins with experts.
import { type Device, type FloatDtype, roundTo, type Tensor } from "@mlxts/core";
import { sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import {
  addRmsNorm,
  fusedPostAttnTripleNorm,
  fusedPostFfNorm2EndLayer,
  rmsNorm,
  rmsNormAdd,
  rmsNormMul,
  rmsNormNoScale,
  rmsNormNoScaleDual,
  rmsNormTriple,
} from "../src/index.ts";
import { DIMS, PATHS, scaledBy, tensorMaker } from "./row_cases.ts";

const { numbers, weightOf } = tensorMaker();
const ROWS = 3;
const dims = process.env.MLXTS_DEVICE === "metal" ? PATHS : DIMS;

type Options = { eps: number; weightOffset: 0 | 1; rounding: "once" | "before-weight" };
const OPTIONS: Options[] = [
  { eps: 1e-6, weightOffset: 0, rounding: "once" },
  { eps: 0.1, weightOffset: 1, rounding: "before-weight" },
];

/** One setting on a device: what its tensors are, and ops that run at once. */
class Setting {
  readonly options: Options;
  readonly dtype: FloatDtype;
  private readonly device: Device;
  private readonly dim: number;
  private readonly weightDtype: FloatDtype;

  constructor(device: Device, dim: number, dtype: FloatDtype, weightDtype: FloatDtype, options: Options) {
    this.device = device;
    this.dim = dim;
    this.dtype = dtype;
    this.weightDtype = weightDtype;
    this.options = options;
  }

  /** Of every second length a vector. */
  scale(): Tensor {
    const size = this.dim % 2 === 0 ? 1 : this.dim;
    return this.device.tensor("f32", [size], numbers(size));
  }

  rows(): Tensor {
    return this.device.tensor(this.dtype, [ROWS, this.dim], numbers(ROWS * this.dim));
  }

  weight(): Tensor {
    const { data } = weightOf({ dim: this.dim, weightDtype: "act", options: this.options });
    return this.device.tensor(this.weightDtype, [this.dim], data);
  }

  async run<T>(call: (encoder: ReturnType<Device["encoder"]>) => T): Promise<T> {
    const encoder = this.device.encoder();
    const result = call(encoder);
    await encoder.commit();
    return result;
  }

  async elementwise(a: Tensor, b: Tensor, f: (a: number, b: number) => number): Promise<Tensor> {
    const [x, y] = [await a.readNumbers(), await b.readNumbers()];
    const values = x.map((v, i) => roundTo(this.dtype, Math.fround(f(v, y[i] as number))));
    return this.device.tensor(this.dtype, a.shape, values);
  }

  add = (a: Tensor, b: Tensor) => this.elementwise(a, b, (v, w) => v + w);
  multiply = (a: Tensor, b: Tensor) => this.elementwise(a, b, (v, w) => v * w);
  /** The rows of x times one number, or one for each column. */
  async scaled(x: Tensor, scale: Tensor): Promise<Tensor> {
    const all = await scale.readNumbers();
    const rows = new Float64Array(x.size).map((_, i) => all[(i % this.dim) % all.length] as number);
    return this.multiply(x, this.device.tensor("f32", x.shape, rows));
  }
  normOfOnes = (x: Tensor) => {
    const weight = this.device.tensor(this.dtype, [this.dim], new Float64Array(this.dim).fill(1));
    return this.run((encoder) => rmsNorm(encoder, { x, weight }, { eps: this.options.eps }));
  };
  in16 = async (x: Tensor) => this.device.tensor("bf16", x.shape, await x.readNumbers());
  norm = (x: Tensor, weight: Tensor) => this.run((encoder) => rmsNorm(encoder, { x, weight }, this.options));
}

async function same(fused: Tensor, chain: Tensor): Promise<boolean> {
  return sameBytes(await fused.read(), await chain.read());
}

/** Each op and its chain: both give the same outputs. */
const CHAINS: Record<string, (s: Setting) => Promise<[fused: Tensor, chain: Tensor][]>> = {
  async rmsNormMul(s) {
    const inputs = { x: s.rows(), weight: s.weight(), factor: s.rows() };
    const fused = await s.run((encoder) => rmsNormMul(encoder, inputs, s.options));
    return [[fused, await s.multiply(await s.norm(inputs.x, inputs.weight), inputs.factor)]];
  },
  async rmsNormAdd(s) {
    const inputs = { x: s.rows(), weight: s.weight(), residual: s.rows() };
    const fused = await s.run((encoder) => rmsNormAdd(encoder, inputs, s.options));
    return [[fused, await s.add(inputs.residual, await s.norm(inputs.x, inputs.weight))]];
  },
  async addRmsNorm(s) {
    const inputs = { a: s.rows(), b: s.rows(), weight: s.weight() };
    const fused = await s.run((encoder) => addRmsNorm(encoder, inputs, s.options));
    const sum = await s.add(inputs.a, inputs.b);
    return [
      [fused.sum, sum],
      [fused.out, await s.norm(sum, inputs.weight)],
    ];
  },
  async rmsNormTriple(s) {
    const [x, weightA, weightB, weightC] = [s.rows(), s.weight(), s.weight(), s.weight()];
    const fused = await s.run((encoder) => rmsNormTriple(encoder, { x, weightA, weightB, weightC }, s.options));
    return [
      [fused.outA, await s.norm(x, weightA)],
      [fused.outB, await s.norm(x, weightB)],
      [fused.outC, await s.norm(x, weightC)],
    ];
  },
  async fusedPostAttnTripleNorm(s) {
    const [weightPost, weightA, weightB, weightC] = [s.weight(), s.weight(), s.weight(), s.weight()];
    const inputs = { hidden: s.rows(), attn: s.rows(), weightPost, weightA, weightB, weightC };
    const fused = await s.run((encoder) => ({
      asked: fusedPostAttnTripleNorm(encoder, { ...inputs, res: true }, s.options),
      absent: fusedPostAttnTripleNorm(encoder, inputs, s.options),
    }));
    const res = await s.add(inputs.hidden, await s.norm(inputs.attn, weightPost));
    const outs = [await s.norm(res, weightA), await s.norm(res, weightB), await s.norm(res, weightC)];
    const pairs = ([outA, outB, outC]: Tensor[]) =>
      [outA, outB, outC].map((out, i): [Tensor, Tensor] => [out as Tensor, outs[i] as Tensor]);
    const { asked, absent } = fused;
    return [
      [asked.res, res],
      ...pairs([asked.outA, asked.outB, asked.outC]),
      ...pairs([absent.outA, absent.outB, absent.outC]),
    ];
  },
  async fusedPostFfNorm2EndLayer(s) {
    const [attn, x, residual] = [s.rows(), s.rows(), s.rows()];
    const inputs = { attn, x, residual, weight2: s.weight(), weight3: s.weight(), scale: s.scale() };
    const fused = await s.run((encoder) => ({
      asked: fusedPostFfNorm2EndLayer(encoder, { ...inputs, m: true }, s.options),
      absent: fusedPostFfNorm2EndLayer(encoder, inputs, s.options),
    }));
    const m = await s.add(attn, await s.norm(x, inputs.weight2));
    const hidden = await s.scaled(await s.add(residual, await s.norm(m, inputs.weight3)), inputs.scale);
    return [
      [fused.asked.m, m],
      [fused.asked.hidden, hidden],
      [fused.absent.hidden, hidden],
    ];
  },
};

/** Without weights: what the op with weights of 1 gives. */
const UNSCALED: typeof CHAINS = {
  async rmsNormNoScale(s) {
    const x = s.rows();
    const out = await s.run((encoder) => rmsNormNoScale(encoder, { x }, { eps: s.options.eps }));
    return [[out, await s.normOfOnes(x)]];
  },
  async rmsNormNoScaleDual(s) {
    if (s.dtype !== "f32") return [];
    const x = s.rows();
    const { out, out16 } = await s.run((encoder) => rmsNormNoScaleDual(encoder, { x }, { eps: s.options.eps }));
    const norm = await s.normOfOnes(x);
    return [
      [out, norm],
      [out16, await s.in16(norm)],
    ];
  },
};

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  describe.each(Object.entries({ ...CHAINS, ...UNSCALED }))("%s has the bits of its chain", (__, chain) => {
    const dtypes: [FloatDtype, FloatDtype][] = [
      ["f32", "f32"],
      ["f16", "f16"],
      ["bf16", "bf16"],
      ["f16", "f32"],
      ["bf16", "f32"],
    ];
    it.each(dtypes)("%s with weights of %s", async (dtype, weightDtype) => {
      for (const options of OPTIONS)
        for (const dim of dims) {
          const outputs = await chain(new Setting(device, dim, dtype, weightDtype, options));
          for (const [fused, expected] of outputs)
            expect(await same(fused, expected), `D ${dim} ${JSON.stringify(options)}`).toBe(true);
        }
    });
  });

  it("a norm of the sum before it is rounded has other bits", async () => {
    const dim = 1030;
    const s = new Setting(device, dim, "bf16", "bf16", OPTIONS[0] as Options);
    const [a, b, weight] = [s.rows(), s.rows(), s.weight()];
    const fused = await s.run((encoder) => addRmsNorm(encoder, { a, b, weight }, s.options));
    const [x, y, w, sum] = await Promise.all([a, b, weight, fused.sum].map((each) => each.readNumbers()));
    const exact = (x as Float64Array).map((v, i) => v + ((y as Float64Array)[i] as number));
    const wrong = scaledBy(sum as Float64Array, w as Float64Array, exact).map((v) => roundTo("bf16", v));
    expect(await fused.out.readNumbers()).not.toEqual(wrong);
    const right = scaledBy(sum as Float64Array, w as Float64Array, sum as Float64Array).map((v) => roundTo("bf16", v));
    const differing = (await fused.out.readNumbers()).filter((v, i) => v !== right[i]).length;
    expect(differing).toBeLessThan((ROWS * dim) / 500);
  });
});
