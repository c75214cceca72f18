import type { Device, Tensor } from "@mlxts/core";
import { compare, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { type Goldens, goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import {
  fusedPostAttnTripleNorm,
  fusedPostFfNorm2EndLayer,
  gatedRmsNorm,
  l2Norm,
  rmsNorm,
  rmsNormAdd,
  rmsNormNoScale,
} from "../src/index.ts";

const hf = goldens("goldens/hf_ops.safetensors");
const delta = goldens("goldens/delta_rule_hf.safetensors");
const norms = goldens("goldens/norms.safetensors");
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

  /** 16 bits: hardly a number may differ, and by its last bit, where sums in another order round to the other side. */
  async function expectGolden(out: Tensor | undefined, name: string) {
    const { numbers, dtype } = { numbers: await (out as Tensor).readNumbers(), dtype: (out as Tensor).dtype };
    const golden = norms.numbers(name);
    if (dtype === "f32") return expect(compare(numbers, golden).ratio, name).toBeLessThan(2e-7);
    const differing = golden.filter((v, i) => v !== numbers[i]).length;
    expect(differing, name).toBeLessThanOrEqual(golden.length / 200);
    expect(compare(numbers, golden).ratio, name).toBeLessThan(dtype === "f16" ? 1e-4 : 8e-4);
  }
  const settings = ["f32", "f16", "bf16"].flatMap((dtype) => [5, 100, 1030].map((dim) => [dtype, dim] as const));

  it.each(settings)("MLX and Llama, %s, D %i", async (dtype, dim) => {
    const name = `norm.${dtype}.d${dim}`;
    const inputs = { x: upload(norms, `${name}.x`), weight: upload(norms, `${name}.weight`) };
    const encoder = device.encoder();
    const before = rmsNorm(encoder, inputs, { eps: 1e-6, rounding: "before-weight" });
    const plain = rmsNormNoScale(encoder, { x: inputs.x }, { eps: 1e-6 });
    await encoder.commit();
    await expectGolden(before, `${name}.mlx`);
    await expectGolden(before, `${name}.llama`);
    await expectGolden(plain, `${name}.mlx_no_weight`);
  });

  it.each(settings)("the layer of Gemma 4, %s, D %i", async (dtype, dim) => {
    const name = (tensor: string) => `gemma4.${dtype}.d${dim}.${tensor}`;
    const of = (...names: string[]) => Object.fromEntries(names.map((each) => [each, upload(norms, name(each))]));
    const residual = upload(norms, name("res"));
    const encoder = device.encoder();
    const attn = of("hidden", "attn", "weightPost", "weightA", "weightB", "weightC") as never;
    const middle = fusedPostAttnTripleNorm(encoder, Object.assign({ res: true }, attn) as never, { eps: 1e-6 });
    const added = rmsNormAdd(encoder, {
      x: upload(norms, name("attn")),
      weight: upload(norms, name("weightPost")),
      residual: upload(norms, name("hidden")),
    });
    const end = fusedPostFfNorm2EndLayer(
      encoder,
      {
        attn: upload(norms, name("branch")),
        x: upload(norms, name("x")),
        residual,
        weight2: upload(norms, name("weight2")),
        weight3: upload(norms, name("weight3")),
        scale: device.tensor("f32", [1], norms.numbers(name("scale"))),
        m: true,
      },
      { eps: 1e-6 },
    );
    const plain = rmsNormNoScale(encoder, { x: upload(norms, name("x")) }, { eps: 1e-6 });
    await encoder.commit();
    await expectGolden(middle.res, name("res"));
    await expectGolden(added, name("res"));
    for (const out of ["outA", "outB", "outC"] as const) await expectGolden(middle[out], name(out));
    await expectGolden(end.m, name("m"));
    await expectGolden(end.hidden, name("end"));
    await expectGolden(plain, name("noScale"));
  });

  it("recorded norm of latents in layer 1 of tiny-deepseek-v3", async () => {
    const inputs = {
      x: upload(norms, "kv_a_layernorm.x"),
      weight: device.tensor("f32", [128], norms.numbers("kv_a_layernorm.weight")),
    };
    const { numbers } = await run((encoder) => rmsNorm(encoder, inputs, { eps: 1e-6, rounding: "before-weight" }));
    expect(compare(numbers, norms.numbers("kv_a_layernorm.y")).ratio).toBeLessThan(2e-7);
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
