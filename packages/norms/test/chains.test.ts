// Fused ops have the bits of the ops that they stand for. Sums and products of two tensors are made here: a sum of two
// f32 in f64, rounded to f32, is the rounded sum, and so is a product.
import { type Device, type FloatDtype, roundTo, type Tensor } from "@mlxts/core";
import { sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { addRmsNorm, rmsNorm, rmsNormAdd, rmsNormMul } from "../src/index.ts";
import { DIMS, numbers, PATHS, weightOf } from "./row_cases.ts";

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
    const values = Array.from(x, (v, i) => roundTo(this.dtype, Math.fround(f(v, y[i] as number))));
    return this.device.tensor(this.dtype, a.shape, values);
  }

  add = (a: Tensor, b: Tensor) => this.elementwise(a, b, (v, w) => v + w);
  multiply = (a: Tensor, b: Tensor) => this.elementwise(a, b, (v, w) => v * w);
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
};

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  describe.each(Object.entries(CHAINS))("%s has the bits of its chain", (__, chain) => {
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
});
