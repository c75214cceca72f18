// Weights in fp8 with a scale for each block, as DeepSeek-V3 is published: `quantize` takes them.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, decodeNumbers, encodeNumbers, type HostTensor, readSafetensors, writeSafetensors } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel, quantizeCheckpoint } from "../src/index.ts";
import { temporary, withConfig } from "./fixtures.ts";
import { hashesOf } from "./mlx_hashes.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const FP8 = { quant_method: "fp8", fmt: "e4m3", activation_scheme: "dynamic", weight_block_size: [128, 128] };

/** E4M3 by its definition: the number of a byte. */
function e4m3(byte: number): number {
  const [sign, exponent, mantissa] = [byte >> 7, (byte >> 3) & 15, byte & 7];
  if (exponent === 15 && mantissa === 7) return Number.NaN;
  return (sign ? -1 : 1) * (exponent > 0 ? (1 + mantissa / 8) * 2 ** (exponent - 7) : (mantissa / 8) * 2 ** -6);
}

/** Gives tensors of a file, which are bytes, the element type F8_E4M3. */
function nameFp8(path: string, names: ReadonlySet<string>): void {
  const bytes = readFileSync(path);
  const begin = 8 + Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, begin).toString()) as Record<string, { dtype: string }>;
  for (const [name, tensor] of Object.entries(header)) if (names.has(name)) tensor.dtype = "F8_E4M3";
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.concat([text, Buffer.alloc((8 - (text.length % 8)) % 8, " ")]);
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(padded.length));
  writeFileSync(path, Buffer.concat([size, padded, bytes.subarray(begin)]));
}

type Change = (tensors: Map<string, HostTensor>, module: string) => void;

/**
 * A checkpoint whose matrices in layers are random fp8, and the same one in bf16. Sizes that are no multiples of 128 have blocks
 * that end early.
 */
function inBoth(from: string, quantization: unknown = FP8, change: Change = () => {}) {
  const random = new Random(8);
  const { tensors } = readSafetensors(join(from, "model.safetensors"));
  const [fp8, bf16] = [new Map<string, HostTensor>(), new Map<string, HostTensor>()];
  const packed = new Set<string>();
  for (const [name, tensor] of tensors) {
    fp8.set(name, tensor);
    bf16.set(name, tensor);
    const { shape } = tensor;
    if (!/layers\..*_proj\w*\.weight$/.test(name) || shape.length !== 2) continue;
    const [rows, cols] = shape as [number, number];
    const blocks = [Math.ceil(rows / 128), Math.ceil(cols / 128)] as [number, number];
    // Neither NaN.
    const data = Uint8Array.from({ length: rows * cols }, () => random.below(2) * 128 + random.below(127));
    const scales = Float32Array.from({ length: blocks[0] * blocks[1] }, () => 0.0001 * (1 + random.below(1000)));
    const values = Float64Array.from(data, (byte, at) => {
      const [row, col] = [Math.floor(at / cols), at % cols];
      const scale = scales[(row >> 7) * blocks[1] + (col >> 7)] as number;
      return Math.fround(e4m3(byte) * scale);
    });
    packed.add(name);
    fp8.set(name, { dtype: "u8", shape, data });
    fp8.set(`${name}_scale_inv`, { dtype: "f32", shape: blocks, data: scales });
    bf16.set(name, { dtype: "bf16", shape, data: encodeNumbers("bf16", values) });
  }
  change(fp8, [...packed][0] as string);
  const folder = (all: Map<string, HostTensor>, config?: unknown) => {
    const path = withConfig((json) => Object.assign(json, config && { quantization_config: config }), from);
    writeSafetensors(join(path, "model.safetensors"), all);
    return path;
  };
  const paths = { fp8: folder(fp8, quantization), bf16: folder(bf16), matrices: packed.size };
  nameFp8(join(paths.fp8, "model.safetensors"), packed);
  return paths;
}

async function quantized(from: string): Promise<string> {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, from, out, { groupSize: 32 });
  return out;
}

describe.each(["tiny-deepseek-v3", "tiny-qwen3-next"])("a checkpoint in fp8: %s", (name) => {
  const from = unpackedCheckpoint(name);

  it("is quantized as the same weights in bf16 are", async () => {
    const { fp8, bf16, matrices } = inBoth(from);
    expect(matrices).toBeGreaterThan(20);
    const out = await quantized(fp8);
    expect(hashesOf(out)).toEqual(hashesOf(await quantized(bf16)));
    const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
    expect(config.quantization_config).toMatchObject({ bits: 4, group_size: 32, mode: "affine" });
    expect(config.quantization_config).not.toHaveProperty("quant_method");
    using model = await loadModel(device, out);
    expect(model.weightBytes).toBeGreaterThan(0);
  });

  it("is refused when it is loaded, with advice that can be followed", async () => {
    const refused = loadModel(device, inBoth(from).fp8);
    await expect(refused).rejects.toThrow(
      'quantizationOf: quant_method "fp8" is not supported — quantize it with `mlxts quantize`',
    );
  });
});

describe("fp8 that quantize refuses", () => {
  const from = unpackedCheckpoint("tiny-deepseek-v3");

  it("scales that do not fit, or are missing", async () => {
    const rule = /tensor \S+_proj\S*\.weight must have scales F32 \[\d+, \d+\], one for each block of 128 × 128, got /;
    const scales =
      (tensor: HostTensor): Change =>
      (all, name) =>
        void all.set(`${name}_scale_inv`, tensor);
    const short = scales({ dtype: "f32", shape: [1], data: new Float32Array(1) });
    await expect(quantized(inBoth(from, FP8, short).fp8)).rejects.toThrow(rule);
    const narrow: Change = (all, name) => {
      const { shape, data } = all.get(`${name}_scale_inv`) as HostTensor;
      const halves = encodeNumbers("bf16", decodeNumbers("f32", data));
      all.set(`${name}_scale_inv`, { dtype: "bf16", shape, data: halves });
    };
    await expect(quantized(inBoth(from, FP8, narrow).fp8)).rejects.toThrow(rule);
    const none: Change = (all, name) => void all.delete(`${name}_scale_inv`);
    await expect(quantized(inBoth(from, FP8, none).fp8)).rejects.toThrow(
      /has dtype F8_E4M3; weights must be F32, F16 or BF16$/,
    );
  });

  it("other blocks, and what else is quantized", async () => {
    const rule = "quantize: `checkpoint` must have a scale for each block of 128 × 128 weights, where these are in fp8";
    for (const block of [[64, 64], undefined, null, "128,128x"]) {
      const { fp8 } = inBoth(from, { ...FP8, weight_block_size: block });
      await expect(quantized(fp8)).rejects.toThrow(`${rule}, got weight_block_size ${JSON.stringify(block)} — `);
    }
    for (const other of [{ quant_method: "awq" }, { bits: 4, group_size: 64 }, 4])
      await expect(quantized(inBoth(from, other).fp8)).rejects.toThrow(
        "quantize: `checkpoint` must not be quantized already, got a quantized checkpoint — start from the original weights",
      );
  });
});
