// Fused norms have the bits of chains of ops from several packages.
import type { Device, FloatDtype, Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { moeCombine } from "@mlxts/moe";
import { add, elementwiseMul } from "@mlxts/nn";
import {
  addRmsNorm,
  fusedMoeWsumPostFfNorm2EndLayer,
  fusedPostFfNorm2EndLayer,
  rmsNorm,
  rmsNormAdd,
  rmsNormMul,
} from "@mlxts/norms";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";

const ROWS = 3;
const TOP_K = 4;
const DIMS = [1, 5, 16, 33, 100, 512, 513, 1030, 2816];
const OPTIONS = { eps: 1e-6, rounding: "once" } as const;

describe.each(DEVICES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());
  const random = new Random(31);
  const tensor = (dtype: FloatDtype, shape: number[]) =>
    device.tensor(dtype, shape, random.normals(shape.reduce((a, b) => a * b, 1)));
  const same = async (fused: Tensor | undefined, chain: Tensor | undefined) =>
    sameBytes(await (fused as Tensor).read(), await (chain as Tensor).read());

  it.each(["f32", "f16", "bf16"] as const)("%s", async (dtype) => {
    for (const dim of DIMS) {
      const row = () => tensor(dtype, [ROWS, dim]);
      const weight = () => tensor(dtype, [dim]);
      const encoder = device.encoder();
      const [x, other] = [row(), row()];
      const w = weight();
      const norm = rmsNorm(encoder, { x, weight: w }, OPTIONS);
      const sum = add(encoder, { a: x, b: other });
      const both = addRmsNorm(encoder, { a: x, b: other, weight: w }, OPTIONS);
      const experts = tensor(dtype, [ROWS, TOP_K, dim]);
      const routing = tensor("f32", [ROWS, TOP_K]);
      const end = {
        attn: row(),
        residual: row(),
        weight2: weight(),
        weight3: weight(),
        scale: tensor("f32", [1]),
        m: true,
      } as const;
      const combined = moeCombine(encoder, { y: experts, weights: routing });
      const chain = fusedPostFfNorm2EndLayer(encoder, { ...end, x: combined }, OPTIONS);
      const fused = fusedMoeWsumPostFfNorm2EndLayer(encoder, { ...end, experts, routing }, OPTIONS);
      const pairs: [Tensor | undefined, Tensor | undefined][] = [
        [rmsNormMul(encoder, { x, weight: w, factor: other }, OPTIONS), elementwiseMul(encoder, { a: norm, b: other })],
        [rmsNormAdd(encoder, { x, weight: w, residual: other }, OPTIONS), add(encoder, { a: other, b: norm })],
        [both.sum, sum],
        [both.out, rmsNorm(encoder, { x: sum, weight: w }, OPTIONS)],
        [fused.m, chain.m],
        [fused.hidden, chain.hidden],
      ];
      await encoder.commit();
      for (const [index, [one, several]] of pairs.entries())
        expect(await same(one, several), `D ${dim}, pair ${index}`).toBe(true);
    }
  });
});
