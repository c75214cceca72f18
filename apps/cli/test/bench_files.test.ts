import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Device, openCheckpoint } from "@mlxts/core";
import { Decoder, loadModel, prefill } from "@mlxts/models";
import { describe, expect, it } from "vitest";
import { checkRoom } from "../src/bench_model_files.ts";
import type { ModelShape } from "../src/bench_shapes.ts";
import { ggufHeader, writeGguf } from "../src/gguf.ts";
import { RandomBits } from "../src/random_bits.ts";
import { checkpointBytes, writeRandomCheckpoint } from "../src/random_checkpoint.ts";
import { randomGgufBytes, writeRandomGguf } from "../src/random_gguf.ts";
import { testFolder } from "./helpers.ts";

const folder = testFolder();
const at = (name: string) => join(folder, name);
const nothing = () => undefined;

const DENSE: ModelShape = {
  family: "qwen3_5",
  hidden: 128,
  layers: 8,
  intermediate: 256,
  vocab: 320,
  context: 4096,
  attention: { heads: 2, kvHeads: 1, headDim: 64 },
  delta: { keyHeads: 1, valueHeads: 2, headDim: 128 },
};
const SPARSE: ModelShape = { ...DENSE, family: "qwen3_next", experts: { count: 8, perToken: 2, width: 64 } };
const SHAPES = [
  ["qwen3_5", DENSE],
  ["qwen3_next", SPARSE],
] as const;

/** What a GGUF file says of itself, read as the format's description has it. */
function readGguf(bytes: Buffer) {
  let position = 0;
  /** Where so many bytes begin that are read now. */
  const next = (count: number) => {
    position += count;
    return position - count;
  };
  const u32 = () => bytes.readUInt32LE(next(4));
  const u64 = () => Number(bytes.readBigUInt64LE(next(8)));
  const text = () => {
    const length = u64();
    const begin = next(length);
    return bytes.toString("utf8", begin, begin + length);
  };
  const value = (type = u32()): unknown => {
    if (type === 4) return u32();
    if (type === 5) return bytes.readInt32LE(next(4));
    if (type === 6) return bytes.readFloatLE(next(4));
    if (type === 8) return text();
    if (type !== 9) throw new Error(`a value of type ${type}`);
    const [each, count] = [u32(), u64()];
    return Array.from({ length: count }, () => value(each));
  };
  const magic = bytes.toString("latin1", next(4), 4);
  const [version, tensorCount, valueCount] = [u32(), u64(), u64()];
  const values = Object.fromEntries(Array.from({ length: valueCount }, () => [text(), value()]));
  const tensors = Array.from({ length: tensorCount }, () => {
    const name = text();
    const dims = Array.from({ length: u32() }, u64);
    return { name, dims, type: u32(), offset: u64() };
  });
  return { magic, version, values, tensors, dataAt: Math.ceil(position / 32) * 32 };
}

describe("random bits", () => {
  const words = (seed: number, name: string) => {
    const filled = new Uint32Array(1000);
    new RandomBits(seed, name).fill(filled);
    return filled;
  };

  it("are the same for the same seed and name only", () => {
    expect(words(1, "a")).toEqual(words(1, "a"));
    for (const other of [words(2, "a"), words(1, "b"), words(1, "aa")])
      expect(other.filter((word, i) => word === words(1, "a")[i]).length).toBeLessThan(3);
  });

  it("go on where they have stopped, and every bit is set half of the time", () => {
    const random = new RandomBits(1, "a");
    const parts = [new Uint32Array(400), new Uint32Array(600)];
    for (const part of parts) random.fill(part);
    expect(parts.flatMap((part) => [...part])).toEqual([...words(1, "a")]);
    for (let bit = 0; bit < 32; bit++) {
      const set = words(7, "weights").filter((word) => (word >>> bit) & 1).length;
      expect(Math.abs(set - 500), `bit ${bit}`).toBeLessThan(100);
    }
  });
});

describe("a random checkpoint", () => {
  it.each(SHAPES)("of %s is loaded and computes numbers of the usual size", async (name, shape) => {
    const path = at(`checkpoint-${name}`);
    await writeRandomCheckpoint(path, shape, 1, nothing);
    using device = Device.open("cpu", { threads: 1 });
    using model = await loadModel(device, path, { activationDtype: "f32" });
    const { size } = statSync(join(path, "model.safetensors"));
    expect([model.modelType, model.vocabSize, model.weightBytes]).toEqual([name, shape.vocab, size]);
    // A header is before the tensors.
    const header = size - checkpointBytes(shape);
    expect([header > 0, header < 2 ** 16]).toEqual([true, true]);
    using state = model.newState({ capacity: 64 });
    const [logits] = await prefill(
      model,
      state,
      Array.from({ length: 40 }, (_, i) => (i * 37) % shape.vocab),
    );
    const rms = (values: ArrayLike<number>) =>
      Math.sqrt(Array.from(values, (value) => value * value).reduce((a, b) => a + b) / values.length);
    expect(rms(logits as Float32Array)).toBeGreaterThan(0.3);
    expect(rms(logits as Float32Array)).toBeLessThan(3);
    // What the layers remember neither vanishes nor grows from one to the next.
    const { tensors } = await state.save();
    for (const [tensor, { data }] of Object.entries(tensors)) {
      const size = rms(data as Float32Array);
      expect(size, tensor).toBeGreaterThan(1e-3);
      expect(size, tensor).toBeLessThan(30);
    }
    using decoder = new Decoder(model, state, { temperature: 0 });
    const ids = [await decoder.next(1), await decoder.next(2)];
    for (const id of ids) expect(id).toBeLessThan(shape.vocab);
  });

  it("has no two layers with the same bytes, and the same bytes for the same seed", async () => {
    for (const [name, seed] of [
      ["one", 1],
      ["again", 1],
      ["other", 2],
    ] as const)
      await writeRandomCheckpoint(at(name), DENSE, seed, nothing);
    const bytes = (name: string) => readFileSync(join(at(name), "model.safetensors"));
    expect(bytes("one").equals(bytes("again"))).toBe(true);
    expect(bytes("one").equals(bytes("other"))).toBe(false);
    using device = Device.open("cpu", { threads: 1 });
    using checkpoint = await openCheckpoint(device, at("one"));
    const large = checkpoint.names.filter((name) => /mlp\.\w+\.(weight|scales)$/.test(name));
    const contents = await Promise.all(large.map(async (name) => (await checkpoint.tensor(name).read()).join()));
    expect(large.length).toBe(6 * DENSE.layers);
    expect(new Set(contents).size).toBe(contents.length);
  });

  it("is checked for before each tensor", async () => {
    let left = 5;
    const check = () => {
      if (left-- === 0) throw new Error("enough");
    };
    await expect(writeRandomCheckpoint(at("stopped"), DENSE, 1, check)).rejects.toThrow("enough");
    expect(() => statSync(join(at("stopped"), "model.safetensors"))).toThrow();
  });
});

describe("a GGUF file", () => {
  it("has a header byte by byte as the format says", () => {
    const header = ggufHeader({ "a.b": { u32: 7 } }, [{ name: "w", type: "q4_0", shape: [2, 32] }]);
    const expected = [
      ..."GGUF".split("").map((c) => c.charCodeAt(0)),
      ...[3, 0, 0, 0],
      ...[1, 0, 0, 0, 0, 0, 0, 0],
      ...[1, 0, 0, 0, 0, 0, 0, 0],
      // The key, its type u32, its value.
      ...[3, 0, 0, 0, 0, 0, 0, 0, 97, 46, 98, 4, 0, 0, 0, 7, 0, 0, 0],
      // The tensor: name, two dimensions, columns first, type Q4_0, offset.
      ...[1, 0, 0, 0, 0, 0, 0, 0, 119, 2, 0, 0, 0],
      ...[32, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
      ...[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    expect([...header.subarray(0, expected.length)]).toEqual(expected);
    expect([header.length % 32, header.subarray(expected.length).every((byte) => byte === 0)]).toEqual([0, true]);
  });

  it("is refused when a tensor gets other bytes than it has", async () => {
    const tensors = [{ name: "w", type: "f32", shape: [4] }] as const;
    const short = () => [new Uint8Array(12)];
    await expect(writeGguf(at("short.gguf"), {}, tensors, short)).rejects.toThrow(
      "w has 16 bytes, but 12 were written",
    );
  });

  it.each(SHAPES)("of %s is read back: values, tensors, and where they lie", async (name, shape) => {
    const path = at(`${name}.gguf`);
    await writeRandomGguf(path, shape, 1, nothing);
    const bytes = readFileSync(path);
    const { magic, version, values, tensors, dataAt } = readGguf(bytes);
    expect([magic, version, bytes.length]).toEqual(["GGUF", 3, randomGgufBytes(shape)]);
    const arch = name === "qwen3_5" ? "qwen35" : "qwen3next";
    expect(values).toMatchObject({
      "general.architecture": arch,
      [`${arch}.block_count`]: shape.layers,
      [`${arch}.embedding_length`]: shape.hidden,
      [`${arch}.rope.dimension_count`]: 16,
      [`${arch}.ssm.inner_size`]: 256,
      "tokenizer.ggml.model": "no_vocab",
    });
    expect(values["qwen35.rope.dimension_sections"]).toEqual(name === "qwen3_5" ? [11, 11, 10, 0] : undefined);
    let end = 0;
    for (const { dims, type, offset, name: tensor } of tensors) {
      expect(offset, tensor).toBe(end);
      const elements = dims.reduce((a, b) => a * b, 1);
      end = Math.ceil((offset + (type === 2 ? (elements / 32) * 18 : elements * 4)) / 32) * 32;
    }
    expect(dataAt + end).toBe(bytes.length);
    const find = (wanted: string) => tensors.find((tensor) => tensor.name === wanted);
    expect(find("token_embd.weight")).toMatchObject({ dims: [128, 320], type: 2 });
    expect(find("blk.3.attn_q.weight")).toMatchObject({ dims: [128, 256], type: 2 });
    expect(find("blk.0.ssm_conv1d.weight")).toMatchObject({ dims: [4, 512], type: 0 });
    if (shape.experts) expect(find("blk.1.ffn_down_exps.weight")).toMatchObject({ dims: [64, 128, 8], type: 2 });
  });

  it("has Q4_0 blocks whose scales make matrices of the usual size", async () => {
    const path = at("scales.gguf");
    await writeRandomGguf(path, DENSE, 1, nothing);
    const bytes = readFileSync(path);
    const { tensors, dataAt } = readGguf(bytes);
    const { offset = Number.NaN } = tensors.find(({ name }) => name === "token_embd.weight") ?? {};
    let squares = 0;
    const blocks = (320 * 128) / 32;
    for (let block = 0; block < blocks; block++) {
      const from = dataAt + offset + block * 18;
      const half = bytes.readUInt16LE(from);
      const scale = 2 ** ((half >> 10) - 15) * (1 + (half & 1023) / 1024);
      for (let i = 0; i < 16; i++)
        for (const code of [(bytes[from + 2 + i] as number) & 15, (bytes[from + 2 + i] as number) >> 4])
          squares += (scale * (code - 8)) ** 2;
    }
    expect(Math.sqrt((squares / blocks / 32) * 128)).toBeCloseTo(1, 1);
  });
});

describe("room on the disk", () => {
  it("is looked at before anything is written", () => {
    checkRoom(folder, 1);
    expect(() => checkRoom(folder, 1e18)).toThrow(
      /^bench model: the model needs \d+ MB, but .* has room for \d+ MB — give another --folder, or fewer --layers$/,
    );
  });
});
