// What the operating system does with the advice of moePages, seen by which pages of a mapped file are in memory.
import { execFileSync } from "node:child_process";
import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { Device, openCheckpoint, type Tensor, writeSafetensors } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { moePages } from "../src/index.ts";

const EXPERTS = 12;
const TMPFS = 0x01021994;
const ALL = Array.from({ length: EXPERTS }, (_, e) => e);

/** On a file system in memory, and elsewhere than on Linux, no page is evicted. */
const evicts =
  process.platform === "linux" && statfsSync(tmpdir()).type !== TMPFS && process.env.MLXTS_DEVICE !== "metal";

/** 4096 on most machines, up to 65536 on arm64. */
const PAGE = evicts ? Number(execFileSync("getconf", ["PAGESIZE"], { encoding: "utf8" })) : 4096;
/** Not whole pages, so that neighbors share one. */
const BYTES = Math.round(73.3 * PAGE);
/** Of the pages that an expert shares with its neighbors, at most. */
const SHARED = 2 * PAGE;

describe.skipIf(!evicts)("pages of a mapped file", () => {
  const directory = temporaryFolder("pages");
  const device = Device.open("cpu");
  const written = Uint8Array.from(new Random(4).integers(EXPERTS * BYTES, 256));
  const path = join(directory, "experts.safetensors");
  let stack: Tensor;

  beforeAll(async () => {
    writeSafetensors(path, [["stack", { dtype: "u8", shape: [EXPERTS, BYTES], data: written }]]);
    stack = (await openCheckpoint(device, path)).tensor("stack");
    await fetchPages();
  });
  afterAll(() => device.dispose());

  /** What was written lies in memory in pieces that may be larger than an expert, of which Linux evicts no part. */
  async function fetchPages(): Promise<void> {
    for (const advice of ["evict", "fetch"] as const) {
      if (advice === "evict") await stack.read();
      const encoder = device.encoder();
      const chosen = device.tensor("u32", [1], [1]);
      moePages(encoder, { stack: stack.reshape([1, stack.size]), chosen }, { advice });
      await encoder.commit();
    }
  }

  /** Gives an advice about some experts; returns how many of their bytes were in memory before. */
  async function advise(advice: "fetch" | "evict", experts: readonly number[], scattered = false): Promise<number[]> {
    const chosen = device.tensor(
      "u32",
      [EXPERTS],
      ALL.map((e) => (experts.includes(e) ? 1 : 0)),
    );
    const encoder = device.encoder();
    const resident = scattered
      ? moePages(
          encoder,
          {
            stack: stack.reshape([stack.size]),
            starts: device.tensor(
              "u32",
              [EXPERTS],
              ALL.map((e) => e * BYTES),
            ),
            chosen,
            resident: true,
          },
          { advice, elements: BYTES },
        )
      : moePages(encoder, { stack, chosen, resident: true }, { advice });
    await encoder.commit();
    const numbers = await (resident as Tensor).readNumbers();
    return experts.map((e) => numbers[e] as number);
  }

  /** Pages that are just being read are not evicted, nor those that this process has not mapped: reading maps them. */
  async function evict(experts: readonly number[], scattered = false): Promise<void> {
    for (let tries = 0; tries < 50; tries++) {
      for (const e of experts) await stack.slice(e, e + 1).read();
      await advise("evict", experts, scattered);
      if (Math.max(...(await advise("evict", experts, scattered))) <= SHARED) return;
      await setTimeout(20);
    }
    throw new Error("no eviction in 50 tries");
  }

  it.each([
    ["in one stack", false],
    ["that have starts", true],
  ])("evict gives back the pages of the chosen experts alone, %s", async (_, scattered) => {
    await stack.read();
    expect(await advise("fetch", ALL, scattered)).toEqual(ALL.map(() => BYTES));
    const gone = [3, 4, 9];
    await evict(gone, scattered);
    const stayed = ALL.filter((e) => !gone.includes(e));
    expect(await advise("fetch", stayed, scattered)).toEqual(stayed.map(() => BYTES));
  });

  it.each([
    ["in one stack", false],
    ["that have starts", true],
  ])("fetch reads the pages of the chosen experts alone, %s", async (_, scattered) => {
    await evict(ALL, scattered);
    const [some, others] = [[2, 7, 11], ALL.filter((e) => ![2, 7, 11].includes(e))];
    await advise("fetch", some, scattered);
    const until = performance.now() + 10_000;
    // What is not mapped yet is not evicted: this only looks.
    while ((await advise("evict", some, scattered)).some((bytes) => bytes < BYTES))
      expect(performance.now()).toBeLessThan(until);
    expect(Math.max(...(await advise("evict", others, scattered)))).toBeLessThanOrEqual(SHARED);
  });

  it("leaves the contents as they are", async () => {
    await advise("fetch", [1, 5]);
    await evict([0, 5, 6]);
    expect(Buffer.compare(Buffer.from((await stack.read()).buffer as ArrayBuffer), Buffer.from(written.buffer))).toBe(
      0,
    );
  });

  it("leaves memory that is no file as it is", async () => {
    const memory = device.tensor("u8", [EXPERTS, BYTES]);
    memory.buffer.write(written);
    for (const advice of ["fetch", "evict"] as const) {
      const encoder = device.encoder();
      moePages(
        encoder,
        {
          stack: memory,
          chosen: device.tensor(
            "u32",
            [EXPERTS],
            ALL.map(() => 1),
          ),
        },
        { advice },
      );
      await encoder.commit();
    }
    expect(Buffer.compare(Buffer.from(memory.typedArray()), Buffer.from(written.buffer))).toBe(0);
  });
});
