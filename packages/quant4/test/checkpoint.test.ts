import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, type Dtype, MlxtsError, openCheckpoint, writeSafetensors } from "@mlxts/core";
import { fixture } from "@mlxts/test-kit/goldens";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { afterAll, describe, expect, it } from "vitest";
import { quantizationOf, quantizedMatmul, readQuantized } from "../src/index.ts";
import { decodeExactly, productReference } from "../src/reference.ts";

const device = Device.open();
const folder = temporaryFolder("quant4");
afterAll(() => device.dispose());

type Shapes = Record<string, readonly [Dtype, ...number[]]>;
/** A quantized module's three tensors: rows 4, cols 256. */
const module = (path: string, bits: number, groupSize: number, cols = 256): Shapes => ({
  [`${path}.weight`]: ["u32", 4, (cols * bits) / 32],
  [`${path}.scales`]: ["bf16", 4, cols / groupSize],
  [`${path}.biases`]: ["bf16", 4, cols / groupSize],
});

let files = 0;
async function checkpoint(shapes: Shapes) {
  const path = join(folder, `${files++}.safetensors`);
  writeSafetensors(
    path,
    Object.entries(shapes).map(([name, [dtype, ...shape]]) => {
      const size = shape.reduce((a, b) => a * b, 1);
      const data =
        dtype === "u32" || dtype === "f32"
          ? new Uint32Array(size)
          : dtype === "u8"
            ? new Uint8Array(size)
            : new Uint16Array(size);
      return [name, { dtype, shape, data }] as const;
    }),
  );
  return openCheckpoint(device, path);
}

async function failure(call: () => unknown) {
  try {
    await call();
  } catch (error) {
    if (error instanceof MlxtsError) return { code: error.code, message: error.message, ...error.details };
    throw error;
  }
  return undefined;
}

/** `keys` of a `quantization`, read for a module of a checkpoint with those tensors. */
const read = async (keys: object, shapes: Shapes, path: string, options?: { cols?: number }) => {
  const quantization = quantizationOf({ quantization: { group_size: 64, bits: 4, ...keys } });
  if (!quantization) throw new Error("no quantization");
  const found = readQuantized(await checkpoint(shapes), quantization, path, options);
  return found && { bits: found.bits, groupSize: found.groupSize, mode: found.mode, words: found.weight.shape };
};

describe("quantizationOf", () => {
  it("reads settings and overrides", () => {
    const config = {
      quantization: {
        group_size: 64,
        bits: 4,
        "a.b": { group_size: 32, bits: 8 },
        "a.c": false,
        "a.d": true,
        "a.e": { bits: 4, group_size: 32, mode: "mxfp4" },
      },
      quantization_config: { quant_method: "fp8" },
    };
    expect(quantizationOf(config)).toEqual({
      bits: 4,
      groupSize: 64,
      mode: "affine",
      overrides: new Map<string, unknown>([
        ["a.b", { bits: 8, groupSize: 32, mode: "affine" }],
        ["a.c", false],
        ["a.d", true],
        ["a.e", { bits: 4, groupSize: 32, mode: "mxfp4" }],
      ]),
    });
    expect(quantizationOf({ quantization_config: { group_size: 32, bits: 8, mode: "affine" } })).toMatchObject({
      bits: 8,
    });
    expect(quantizationOf({ quantization: null })).toBeUndefined();
    expect(quantizationOf({})).toBeUndefined();
  });

  it.each<[config: unknown, code: string, message: string]>([
    [[], "QuantConfig", "config.json: must be a JSON object"],
    [{ quantization: 4 }, "QuantConfig", "config.json: `quantization` must be an object"],
    [{ quantization: { bits: 4 } }, "QuantConfig", "config.json: `quantization` must have `bits` and `group_size`"],
    [
      { quantization: { bits: "4", group_size: 64 } },
      "QuantConfig",
      'config.json: `bits` must be one of 2, 3, 4, 5, 6, 8, got "4"',
    ],
    [
      { quantization: { bits: 4, group_size: 63 } },
      "QuantConfig",
      "config.json: `group_size` must be one of 16, 32, 64, 128, got 63",
    ],
    [
      { quantization: { bits: 4, group_size: 64, mode: "linear" } },
      "QuantConfig",
      'config.json: `mode` must be one of affine, mxfp4, mxfp8, nvfp4, got "linear"',
    ],
    [
      { quantization_config: { quant_method: "awq", bits: 4, group_size: 128 } },
      "UnsupportedDtype",
      'quantizationOf: quant_method "awq" is not supported — quantize the original weights with `mlxts quantize`',
    ],
    [
      { quantization_config: { quant_method: "fp8", weight_block_size: [128, 128] } },
      "UnsupportedDtype",
      'quantizationOf: quant_method "fp8" is not supported — quantize it with `mlxts quantize`',
    ],
  ])("refuses %j", async (config, code, message) => {
    expect(await failure(() => quantizationOf(config))).toMatchObject({ code, message });
  });
});

describe("readQuantized", () => {
  const common = { bits: 4, groupSize: 64, mode: "affine", words: [4, 32] };
  const gate = { bits: 8, groupSize: 64, mode: "affine", words: [4, 64] };

  it("takes modules that have scales, and only those", async () => {
    expect(await read({}, module("m", 4, 64), "m")).toEqual(common);
    expect(await read({}, { "m.weight": ["bf16", 4, 8] }, "m")).toBeUndefined();
    expect(await read({ m: false }, { "m.weight": ["bf16", 4, 8] }, "m")).toBeUndefined();
    expect(await read({ m: true }, module("m", 4, 64), "m")).toEqual(common);
  });

  it.each([
    ["model.language_model.layers.0.gate", "language_model.model.layers.0.gate"],
    ["language_model.model.layers.0.gate", "model.language_model.layers.0.gate"],
    ["model.layers.0.gate", "language_model.model.layers.0.gate"],
    ["layers.0.gate", "model.layers.0.gate"],
    ["language_model.model.layers.0.gate", "layers.0.gate"],
  ])("finds the override %s for %s", async (override, path) => {
    expect(await read({ [override]: { bits: 8, group_size: 64 } }, module(path, 8, 64), path)).toEqual(gate);
  });

  it("prefers the override of the exact path and does not mix up modules", async () => {
    const overrides = { "m.gate": { bits: 8, group_size: 64 }, "model.m.gate": { bits: 8, group_size: 32 } };
    expect(await read(overrides, module("m.gate", 8, 64), "m.gate")).toEqual(gate);
    expect(await read({ "mtp.layers.0": { bits: 8, group_size: 64 } }, module("layers.0", 4, 64), "layers.0")).toEqual(
      common,
    );
  });

  /** Overrides for other modules: this one's may go by a path that nobody knows any more. */
  const elsewhere = { elsewhere: { bits: 8, group_size: 64 } };

  it("falls back to the shapes where the config has overrides that match nothing", async () => {
    // 1024 = bits · group size is 8 · 128 only.
    expect(await read(elsewhere, module("m", 8, 128), "m")).toEqual({
      bits: 8,
      groupSize: 128,
      mode: "affine",
      words: [4, 64],
    });
    expect(await read(elsewhere, module("m", 8, 64), "m", { cols: 256 })).toEqual(gate);
    // Without the columns 8 bits in groups of 32 look like 4 bits in groups of 64.
    expect(await read(elsewhere, module("m", 8, 32), "m", { cols: 256 })).toMatchObject({ bits: 8, groupSize: 32 });
    expect(await read({ m: { bits: 8 } }, module("m", 8, 32), "m")).toMatchObject({ bits: 8, groupSize: 32 });
    expect(await read({ m: { group_size: 128 } }, module("m", 2, 128), "m")).toMatchObject({ bits: 2, groupSize: 128 });
    expect(await read({ m: { group_size: 128, bits: 2 } }, module("m", 2, 128), "m")).toMatchObject({ bits: 2 });
  });

  it("takes stacks of experts", async () => {
    const shapes: Shapes = {
      "e.weight": ["u32", 3, 4, 32],
      "e.scales": ["f16", 3, 4, 4],
      "e.biases": ["f16", 3, 4, 4],
    };
    expect(await read({}, shapes, "e")).toEqual({ ...common, words: [3, 4, 32] });
  });

  it("overlooks keys that are no modules", async () => {
    const keys = { quant_method: null, version: "1", layers: 8, ignored: ["a"], linear: { bits: 9 }, m_other: null };
    expect(await read(keys, module("m", 4, 64), "m")).toEqual(common);
    // They excuse no contradiction.
    expect(await failure(() => read(keys, module("m", 8, 128), "m"))).toMatchObject({ code: "QuantConfig" });
  });

  const m = module("m", 4, 64);
  it.each<[name: string, quantization: object, shapes: Shapes, code: string, message: string, cols?: number]>([
    [
      "false with scales",
      { m: false },
      m,
      "QuantConfig",
      "m: the config says that it is not quantized, but it has `scales`",
    ],
    [
      "an override that is a number",
      { m: 8 },
      m,
      "QuantConfig",
      "m: its override must be true, false or an object, got 8",
    ],
    [
      "an override with a wrong width",
      { m: { bits: 9 } },
      m,
      "QuantConfig",
      "m: `bits` must be one of 2, 3, 4, 5, 6, 8, got 9",
    ],
    [
      "an override without scales",
      { m: true },
      { "m.weight": ["u32", 4, 32] },
      "QuantConfig",
      "m: is quantized according to the config, but has no `scales`",
    ],
    [
      "no biases",
      {},
      { "m.weight": ["u32", 4, 32], "m.scales": ["bf16", 4, 4] },
      "QuantConfig",
      "m: is quantized according to the tensors, but has no `biases`",
    ],
    [
      "an override against the shapes",
      { m: { bits: 8, group_size: 64 } },
      m,
      "QuantConfig",
      "m: 32 words and 4 groups in a row contradict 8 bits in groups of 64",
    ],
    [
      "the common setting of a config without overrides against the shapes",
      {},
      module("m", 8, 64),
      "QuantConfig",
      "m: 64 words and 4 groups in a row contradict 4 bits in groups of 64",
    ],
    [
      "columns against the shapes",
      elsewhere,
      m,
      "QuantConfig",
      "m: 32 words and 4 groups in a row of 100 columns contradict 4 bits in groups of 64 and every other setting",
      100,
    ],
    [
      "shapes that fit nothing",
      elsewhere,
      { ...m, "m.weight": ["u32", 4, 33] },
      "QuantConfig",
      "m: 33 words and 4 groups in a row contradict 4 bits in groups of 64 and every other setting",
    ],
    [
      "shapes that fit twice",
      elsewhere,
      module("m", 8, 64),
      "QuantConfig",
      "m: 64 words and 4 groups in a row can be 4 bits in groups of 128 or 8 bits in groups of 64",
    ],
    [
      "two overrides",
      { "model.m": { bits: 8, group_size: 64 }, "language_model.m": true },
      m,
      "QuantConfig",
      "m: has different overrides as model.m, language_model.m",
    ],
    [
      "a dense weight with scales",
      {},
      { ...m, "m.weight": ["bf16", 4, 32] },
      "QuantConfig",
      "m: `weight` must have dtype U32, got BF16",
    ],
    [
      "scales of u8",
      {},
      { ...m, "m.scales": ["u8", 4, 4] },
      "QuantConfig",
      "m: `scales` must have dtype F32, F16 or BF16, got U8",
    ],
    [
      "biases of f32",
      {},
      { ...m, "m.biases": ["f32", 4, 4] },
      "QuantConfig",
      "m: `biases` must have the dtype of `scales`, BF16, got F32",
    ],
    [
      "rows",
      {},
      { ...m, "m.scales": ["bf16", 5, 4] },
      "QuantConfig",
      "m: `scales` [5, 4] must have the rows of `weight` [4, 32]",
    ],
    [
      "groups of biases",
      {},
      { ...m, "m.biases": ["bf16", 4, 5] },
      "QuantConfig",
      "m: `biases` must have the shape of `scales`, [4, 4], got [4, 5]",
    ],
    [
      "rank",
      {},
      { ...m, "m.weight": ["u32", 32] },
      "QuantConfig",
      "m: `weight` must have at least 2 dimensions, got [32]",
    ],
    [
      "3 bits",
      { bits: 3 },
      module("m", 3, 64),
      "UnsupportedDtype",
      "readQuantized: a width of 3 bits (m) is not supported — bits 2, 4, 8 are",
    ],
    [
      "mxfp4",
      { mode: "mxfp4", group_size: 32 },
      m,
      "UnsupportedDtype",
      "readQuantized: mode mxfp4 of m is not supported — mode affine is",
    ],
    [
      "AWQ",
      {},
      { "m.qweight": ["u32", 4, 32], "m.scales": ["f16", 4, 4] },
      "UnsupportedDtype",
      "readQuantized: the layout of m.qweight is not supported — convert the model with mlx-lm",
    ],
  ])("refuses %s", async (_, quantization, shapes, code, message, cols) => {
    const found = await failure(() => read(quantization, shapes, "m", cols === undefined ? {} : { cols }));
    expect(found).toMatchObject({ code, message });
    if (code === "QuantConfig") expect(found).toMatchObject({ module: "m", reason: message.slice(3) });
  });

  it("reads a checkpoint of mlx-lm where it lies and multiplies with it", async () => {
    const path = fixture("tiny-qwen3.5-4bit");
    const quantization = quantizationOf(JSON.parse(readFileSync(join(path, "config.json"), "utf8")));
    if (!quantization) throw new Error("no quantization");
    using weights = await openCheckpoint(device, path);
    const paths = weights.names.flatMap((name) => (name.endsWith(".weight") ? [name.slice(0, -7)] : []));
    const found = paths.flatMap((module) => readQuantized(weights, quantization, module) ?? []);
    expect(found.length).toBe(weights.names.filter((name) => name.endsWith(".scales")).length);
    const q = found[1];
    if (!q) throw new Error("no matrix");
    const [rows = 0, words = 0] = q.weight.shape;
    const cols = words * 8;
    const x = device.tensor(
      "f32",
      [2, cols],
      Float32Array.from({ length: 2 * cols }, (_, i) => Math.sin(i)),
    );
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x, q });
    await encoder.commit();
    const [scales, biases] = [await q.scales.readNumbers(), await q.biases.readNumbers()];
    const w = decodeExactly((await q.weight.read()) as Uint32Array, scales, biases, q);
    const expected = productReference(await x.readNumbers(), w, rows, cols, true);
    const got = await out.readNumbers();
    expect(Math.max(...expected.map((v, i) => Math.abs(v - (got[i] as number))))).toBeLessThan(1e-5);
  });
});
