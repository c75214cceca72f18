import { join } from "node:path";
import {
  Device,
  decodeNumbers,
  encodeNumbers,
  type FloatDtype,
  openCheckpoint,
  readSafetensors,
  writeSafetensors,
} from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { activationDtypeFor } from "../src/activation_dtype.ts";
import { loadModel } from "../src/index.ts";
import { tiny, tiny4bit, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

/** A GPU computes in each dtype; a CPU only in those that its level is faster with. */
const gpu = { gpu: true, level: "metal" };
const avx2 = { gpu: false, level: "avx2" };

/** A checkpoint's tensors by name. */
const stored = (dtypes: Record<string, FloatDtype | "u32">) => ({
  names: Object.keys(dtypes),
  info: (name: string) => ({ dtype: dtypes[name] }),
});
type Tensors = Parameters<typeof activationDtypeFor>[3];
const nothing: Tensors = stored({});
const auto = (json: Record<string, unknown>, tensors = nothing, on = gpu) =>
  activationDtypeFor("auto", on, json, tensors);

describe("auto takes the checkpoint's own dtype", () => {
  it.each([
    ["bfloat16", "bf16"],
    ["float16", "f16"],
    ["float32", "f32"],
  ] as const)("%s in the config", (name, dtype) => {
    for (const field of ["dtype", "torch_dtype"]) {
      expect(auto({ [field]: name })).toBe(dtype);
      expect(auto({ text_config: { [field]: name } })).toBe(dtype);
    }
  });

  it("of the text model before that of the whole, of the newer name before the older one, of the config before the file", () => {
    const file = stored({ "model.embed_tokens.weight": "f32" });
    const text_config = { dtype: "float16", torch_dtype: "float32" };
    expect(auto({ text_config, dtype: "bfloat16" }, file)).toBe("f16");
    expect(auto({ text_config: { torch_dtype: "float16" }, dtype: "bfloat16" }, file)).toBe("f16");
    expect(auto({ text_config: {}, dtype: "bfloat16", torch_dtype: "float16" }, file)).toBe("bf16");
    expect(auto({ dtype: null, torch_dtype: "float16" }, file)).toBe("f16");
    expect(auto({ text_config: { dtype: null }, dtype: null }, file)).toBe("f32");
  });

  it("of the embedding, or of its scales, where the config says nothing", () => {
    for (const dtype of ["f32", "f16", "bf16"] as const) {
      expect(auto({}, stored({ "a.norm.weight": "f32", "model.embed_tokens.weight": dtype }))).toBe(dtype);
      expect(auto({}, stored({ "embed_tokens.weight": "u32", "embed_tokens.scales": dtype }))).toBe(dtype);
    }
    expect(auto({}, stored({ "embed_tokens.weight": "u32" }))).toBe("f32");
    expect(auto({})).toBe("f32");
  });

  it("where the device is faster with it, and f32 elsewhere", () => {
    for (const dtype of ["bfloat16", "float16", "float32"]) expect(auto({ dtype }, nothing, avx2)).toBe("f32");
    const quantization = (bits: number) => ({ bits, group_size: 64 });
    expect(auto({ dtype: "bfloat16", quantization: quantization(4) }, nothing, avx2)).toBe("bf16");
    expect(auto({ dtype: "bfloat16", quantization_config: quantization(4) }, nothing, avx2)).toBe("bf16");
    expect(auto({ dtype: "bfloat16", quantization: quantization(8) }, nothing, avx2)).toBe("f32");
    expect(auto({ dtype: "float16", quantization: quantization(4) }, nothing, avx2)).toBe("f32");
    const avx512 = { gpu: false, level: "avx512" };
    expect(auto({ dtype: "bfloat16" }, nothing, avx512)).toBe("bf16");
    expect(auto({ dtype: "float16" }, nothing, avx512)).toBe("f32");
    const amx = { gpu: false, level: "amx" };
    expect(auto({ dtype: "bfloat16" }, nothing, amx)).toBe("bf16");
    expect(auto({ dtype: "float16" }, nothing, amx)).toBe("f16");
  });
});

describe("loadModel", () => {
  it("finds the dtype of checkpoints as they are", async () => {
    for (const folder of [tiny, tiny4bit]) {
      using checkpoint = await openCheckpoint(device, folder);
      expect(auto({}, checkpoint)).toBe("bf16");
      using model = await loadModel(device, folder, { activationDtype: "auto" });
      const quantization = folder === tiny4bit ? { bits: 4, group_size: 64 } : undefined;
      expect(model.activationDtype).toBe(auto({ dtype: "bfloat16", quantization }, nothing, device));
    }
  });

  it.each(["f16", "f32"] as const)("finds %s in the file where the config says nothing", async (dtype) => {
    const folder = withConfig((config) => {
      config.dtype = undefined;
    });
    const path = join(folder, "model.safetensors");
    const tensors = [...readSafetensors(path).tensors].map(([name, tensor]) => {
      if (!name.endsWith("embed_tokens.weight")) return [name, tensor] as const;
      const data = encodeNumbers(dtype, decodeNumbers(tensor.dtype, tensor.data));
      return [name, { ...tensor, dtype, data }] as const;
    });
    writeSafetensors(path, tensors);
    using checkpoint = await openCheckpoint(device, folder);
    expect(auto({}, checkpoint)).toBe(dtype);
    using model = await loadModel(device, folder, { activationDtype: "auto" });
    expect(model.activationDtype).toBe(auto({}, checkpoint, device));
  });

  it("takes an asked dtype whatever the config says", async () => {
    const folder = withConfig((config) => {
      config.dtype = "int8";
    });
    for (const activationDtype of ["f32", "f16", "bf16"] as const) {
      using model = await loadModel(device, folder, { activationDtype });
      expect(model.activationDtype).toBe(activationDtype);
    }
  });

  it.each(["int8", "bf16", "", 16, {}, ["bfloat16"]])("refuses a config whose dtype is %j", async (dtype) => {
    const folder = withConfig((config) => {
      config.dtype = dtype;
    });
    await expect(loadModel(device, folder, { activationDtype: "auto" })).rejects.toMatchObject({
      code: "InvalidArgument",
      message: expect.stringContaining("loadModel: `config.dtype` must be one of bfloat16, float16, float32, got "),
    });
  });

  it.each(["f64", "bfloat16", "Auto", "", 7, {}, ["f32"]])("refuses activations in %j", async (value) => {
    await expect(loadModel(device, tiny, { activationDtype: value as never })).rejects.toMatchObject({
      name: "RangeError",
      code: "InvalidArgument",
      message: expect.stringContaining("loadModel: `activationDtype` must be one of f32, f16, bf16, auto, got "),
    });
  });
});
