import type { Device, Tensor } from "@mlxts/core";
import { compare, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { type Goldens, goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { gatedRmsNorm, l2Norm, rmsNorm } from "../src/index.ts";

const hf = goldens("goldens/hf_ops.safetensors");
const delta = goldens("goldens/delta_rule_hf.safetensors");
const layer = goldens("tiny-qwen3.5/reference.safetensors");

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const upload = (file: Goldens, name: string): Tensor => {
    const { dtype, shape, data } = file.tensor(name);
    return device.tensor(dtype, shape, data as Float32Array);
  };

  async function run(call: (encoder: ReturnType<Device["encoder"]>) => Tensor) {
    const encoder = device.encoder();
    const out = call(encoder);
    await encoder.commit();
    return { raw: await out.read(), numbers: await out.readNumbers() };
  }

  describe("Hugging Face Qwen3.5 norms", () => {
    for (const name of ["norm.d256", "norm.d100", "norm.d256.bf16", "norm.d100.bf16"])
      it(`${name}: rmsNorm with weightOffset 1`, async () => {
        const inputs = { x: upload(hf, `${name}.x`), weight: upload(hf, `${name}.weight`) };
        const { raw, numbers } = await run((encoder) => rmsNorm(encoder, inputs, { eps: 1e-6, weightOffset: 1 }));
        if (name.endsWith("bf16")) expect(sameBytes(raw, hf.tensor(`${name}.y`).data)).toBe(true);
        else expect(compare(numbers, hf.numbers(`${name}.y`)).ratio).toBeLessThan(2e-7);
      });

    for (const name of ["gated.d256", "gated.d100", "gated.d256.bf16", "gated.d100.bf16"])
      it(`${name}: gatedRmsNorm rounded before the weight`, async () => {
        const inputs = {
          x: upload(hf, `${name.replace("gated", "norm")}.x`),
          z: upload(hf, `${name}.gate`),
          weight: upload(hf, `${name}.weight`),
        };
        const { raw, numbers } = await run((encoder) =>
          gatedRmsNorm(encoder, inputs, { eps: 1e-6, rounding: "before-weight" }),
        );
        if (name.endsWith("bf16")) expect(sameBytes(raw, hf.tensor(`${name}.y`).data)).toBe(true);
        else expect(compare(numbers, hf.numbers(`${name}.y`)).ratio).toBeLessThan(2e-7);
      });
  });

  it("recorded input norm of layer 1 of tiny-qwen3.5", async () => {
    const inputs = { x: upload(layer, "op.norm.x"), weight: upload(layer, "op.norm.weight") };
    const golden = layer.numbers("op.norm.y");
    const plain = await run((encoder) => rmsNorm(encoder, inputs, { eps: 1e-6 }));
    const offset = await run((encoder) => rmsNorm(encoder, inputs, { eps: 1e-6, weightOffset: 1 }));
    expect(compare(offset.numbers, golden).ratio).toBeLessThan(2e-7);
    // The weight is stored with meaning 1 + w: without the offset nothing is left of the layer.
    expect(compare(plain.numbers, golden).ratio).toBeGreaterThan(1);
  });

  it("a weight widened to f32 keeps its product in f32, which is not what a bf16 model does", async () => {
    const name = "gated.d256.bf16";
    const inputs = {
      x: upload(hf, "norm.d256.bf16.x"),
      z: upload(hf, `${name}.gate`),
      weight: device.tensor("f32", hf.tensor(`${name}.weight`).shape, hf.numbers(`${name}.weight`)),
    };
    const { numbers } = await run((encoder) => gatedRmsNorm(encoder, inputs, { eps: 1e-6, rounding: "before-weight" }));
    const golden = hf.numbers(`${name}.y`);
    expect(numbers.filter((v, i) => v !== golden[i]).length).toBeGreaterThan(numbers.length / 10);
  });

  it("unit vectors of the delta rule's fixtures are l2Norm without ε", async () => {
    for (const name of ["t70", "t33_state", "b2_t64_state", "t1_state"])
      for (const tensor of ["q", "k"]) {
        const x = upload(delta, `${name}.${tensor}`);
        const { numbers } = await run((encoder) => l2Norm(encoder, { x }, { eps: 0 }));
        expect(compare(numbers, delta.numbers(`${name}.${tensor}_unit`)).ratio).toBeLessThan(2e-7);
      }
  });
});
