// Experts that take less memory than the checkpoint has: the same results, and what stays in memory.
import { closeSync, cpSync, fsyncSync, openSync, readdirSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { Device, openCheckpoint, Tensor } from "@mlxts/core";
import { moePages } from "@mlxts/moe";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { Decoder, loadModel, prefill, quantizeCheckpoint } from "../src/index.ts";
import { limitExperts } from "../src/resident_experts.ts";
import { misalign, sharded, temporary, tiny } from "./fixtures.ts";

const original = unpackedCheckpoint("tiny-qwen3-next");
const [LAYERS, EXPERTS, PER_TOKEN] = [4, 8, 2];
const EXPERT_BYTES = 3 * 128 * 256 * 2;
/** Two experts of each layer. */
const LEAST = LAYERS * PER_TOKEN * EXPERT_BYTES;
const TMPFS = 0x01021994;
const prompt = Array.from({ length: 90 }, (_, i) => (i * 379) % 4096);

const gpu = process.env.MLXTS_DEVICE === "metal";
const device = Device.open();
afterAll(() => device.dispose());

/** The logits of a prompt, fed in two pieces, and the tokens that follow. */
async function results(folder: string, expertMemory?: number): Promise<{ logits: Float32Array[]; ids: number[] }> {
  using model = await loadModel(device, folder, expertMemory === undefined ? {} : { expertMemory });
  using state = model.newState({ capacity: 200 });
  await prefill(model, state, prompt.slice(0, 7));
  const logits = await prefill(model, state, prompt.slice(7), { positions: [0, 41, 82] });
  using decoder = new Decoder(model, state);
  const ids = [1];
  for (let i = 0; i < 40; i++) ids.push(await decoder.next(ids.at(-1) as number));
  return { logits, ids };
}

/** Each expert's matrices in all three files, and each projection's. */
const inThreeFiles = () => sharded(original, 3, (_, place) => place % 3);

describe.skipIf(gpu)("a limit of the experts' memory", () => {
  it.each([
    ["what one token needs", LEAST],
    ["three experts of each layer", (LEAST * 3) / 2 + 1],
    ["all experts", LAYERS * EXPERTS * EXPERT_BYTES],
    ["more than there are", Number.POSITIVE_INFINITY],
  ])("changes no bit: %s", async (_, bytes) => {
    expect(await results(original, bytes)).toEqual(await results(original));
  });

  it("changes no bit of DeepSeek-V3, nor of 4-bit experts", async () => {
    const fourBits = join(temporary(), "q4");
    await quantizeCheckpoint(device, original, fourBits, { bits: 4, groupSize: 64 });
    for (const folder of [unpackedCheckpoint("tiny-deepseek-v3"), fourBits]) {
      const least = await loadModel(device, folder, { expertMemory: 1 }).then(
        () => 0,
        (error: Error) => Number(/at least (\d+)/.exec(error.message)?.[1]),
      );
      expect(least).toBeGreaterThan(0);
      expect(await results(folder, least)).toEqual(await results(folder));
    }
  });

  it.each([
    ["what one token needs", LEAST],
    ["three experts of each layer", (LEAST * 3) / 2 + 1],
    ["all experts", LAYERS * EXPERTS * EXPERT_BYTES],
  ])("changes no bit of experts in several files: %s", async (_, bytes) => {
    expect(await results(inThreeFiles(), bytes)).toEqual(await results(original));
  });

  it.each([1, 2, 3])(
    "changes no bit of 4-bit experts whose file is %i bytes off: none of them is copied",
    async (off) => {
      const aligned = join(temporary(), "q4");
      await quantizeCheckpoint(device, original, aligned, { bits: 4, groupSize: 64 });
      const folder = join(temporary(), "off");
      cpSync(aligned, folder, { recursive: true });
      for (let i = 0; i < off; i++) misalign(join(folder, "model.safetensors"));
      const least = (LEAST * 4.5) / 16;
      const before = device.counters.copiedTensors;
      const found = await results(folder, least);
      using checkpoint = await openCheckpoint(device, folder);
      const others = checkpoint.names.filter((name) => !name.includes(".switch_mlp."));
      expect(device.counters.copiedTensors - before).toBeLessThanOrEqual(others.length);
      expect(found).toEqual(await results(aligned, least));
      expect(found).toEqual(await results(aligned));
      await expect(results(folder, least - 1)).rejects.toThrow(`must be at least ${least}, what one token needs`);
    },
  );

  it("refuses dense experts that were copied because their file does not align them", async () => {
    const folder = join(temporary(), "off");
    cpSync(original, folder, { recursive: true });
    misalign(join(folder, "model.safetensors"));
    expect(await results(folder)).toEqual(await results(original));
    await expect(loadModel(device, folder, { expertMemory: LEAST })).rejects.toThrow(
      "loadModel: `expertMemory` must be left out where experts had to be copied into memory, since their file does not align them",
    );
  });

  it.each([
    [LEAST - 1, `loadModel: \`expertMemory\` must be at least ${LEAST}, what one token needs, got ${LEAST - 1}`],
    [Number.NaN, `loadModel: \`expertMemory\` must be at least ${LEAST}, what one token needs, got NaN`],
    ["2 GB", "loadModel: `expertMemory` must be a number of bytes, got 2 GB"],
  ])("refuses %s", async (bytes, message) => {
    const { liveBuffers } = device.counters;
    await expect(loadModel(device, original, { expertMemory: bytes as number })).rejects.toThrow(message);
    await device.encoder().commit();
    expect(device.counters.liveBuffers).toBe(liveBuffers);
  });

  it("refuses a model without experts", async () => {
    await expect(loadModel(device, tiny, { expertMemory: 1e9 })).rejects.toThrow(
      "loadModel: `expertMemory` must be left out for a model without experts, got 1000000000",
    );
  });
});

it.runIf(gpu)("a limit of the experts' memory is refused on a GPU", async () => {
  await expect(loadModel(device, original, { expertMemory: LEAST })).rejects.toThrow(
    "loadModel: `expertMemory` must be left out on a GPU, whose driver keeps whole weights in memory",
  );
});

const evicts = !gpu && process.platform === "linux" && statfsSync(tmpdir()).type !== TMPFS;

describe.skipIf(!evicts).each([
  ["of a file that nobody else uses", original],
  ["of three files", inThreeFiles()],
])("%s", (_, from) => {
  const folder = join(temporary(), "copy");
  cpSync(from, folder, { recursive: true });
  for (const name of readdirSync(folder)) {
    const file = openSync(join(folder, name), "r+");
    fsyncSync(file);
    closeSync(file);
  }

  /** The part of all experts' bytes that is in memory. It looks through a mapping of its own, which has no pages to evict. */
  async function share(): Promise<number> {
    using checkpoint = await openCheckpoint(device, folder);
    const tensors = checkpoint.names
      .filter((name) => name.includes(".experts."))
      .map((name) => checkpoint.tensor(name));
    const encoder = device.encoder();
    const chosen = device.tensor("u32", [1], [1]);
    const counts = tensors.map((tensor) => {
      const stack = tensor.reshape([1, tensor.size]);
      return moePages(encoder, { stack, chosen, resident: true }, { advice: "evict" }) as Tensor;
    });
    await encoder.commit();
    let resident = 0;
    for (const count of counts) resident += (await count.readNumbers())[0] as number;
    return resident / tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  }

  /**
   * Reads all files into memory page by page. Files that are copied or read ahead lie there in larger pieces, of which
   * Linux evicts no part.
   */
  async function fetchPages(): Promise<void> {
    using checkpoint = await openCheckpoint(device, folder);
    const buffers = new Set(checkpoint.names.map((name) => checkpoint.tensor(name).buffer));
    const stacks = [...buffers].map((buffer) => new Tensor(buffer, "u8", [1, buffer.byteLength]));
    const advise = async (advice: "fetch" | "evict") => {
      const encoder = device.encoder();
      for (const stack of stacks) moePages(encoder, { stack, chosen: device.tensor("u32", [1], [1]) }, { advice });
      await encoder.commit();
    };
    for (let tries = 0; tries < 50 && (await share()) > 0.01; tries++) {
      for (const stack of stacks) await stack.read();
      await advise("evict");
    }
    expect(await share()).toBeLessThan(0.01);
    await advise("fetch");
    for (let tries = 0; tries < 500 && (await share()) < 1; tries++) await setTimeout(10);
    expect(await share()).toBe(1);
  }

  /** The least part that is in memory after one of several prompts: after the first the system may still read ahead. */
  async function leastShare(expertMemory?: number): Promise<number> {
    await fetchPages();
    using model = await loadModel(device, folder, expertMemory === undefined ? {} : { expertMemory });
    let least = 1;
    for (let prompts = 0; prompts < 5; prompts++) {
      using state = model.newState({ capacity: 200 });
      await prefill(model, state, prompt);
      least = Math.min(least, await share());
    }
    return least;
  }

  it("only those experts stay in memory after a prompt", async () => {
    expect(await leastShare()).toBe(1);
    // Two of eight experts, and pages that two experts share.
    expect(await leastShare(LEAST)).toBeLessThan(0.5);
  });
});

it("a limit keeps as many experts of each layer as fit, and no part of one more", () => {
  using cpu = Device.open("cpu");
  const kept: number[] = [];
  const layer = (bytes: number) => ({
    perToken: 2,
    bytes,
    copied: false,
    keep: (_: Device, keep: number) => void kept.push(keep),
  });
  // An expert of both layers takes 400 bytes.
  for (const bytes of [800, 1199, 1200, 1399, 1599.9])
    limitExperts("op", cpu, [layer(100), layer(300)] as never, bytes);
  expect(kept).toEqual([2, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
});
