// Many generations of every kind: what they take is given back.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { repeated } from "@mlxts/test-kit/rings";
import { expect, it } from "vitest";
import { generate, generateBatch, PrefixCache, promptLookup } from "../src/index.ts";
import { liveBuffers, prompts, tinyOnCpu } from "./fixtures.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const { device, model } = await tinyOnCpu();
const long = prompts.flatMap(({ ids }) => ids);
const cache = new PrefixCache(model, { every: 64, maxBytes: 1 << 21 });
const LENGTHS = [1, 5, 20, 66];

async function read(texts: AsyncIterable<unknown>, count: number): Promise<void> {
  for await (const _ of texts) if (--count === 0) return;
}

/** The generation of that number: of its own or the caller's state, with guesses, a cache, sampling, two texts, and early ends. */
async function generation(turn: number): Promise<void> {
  const length = LENGTHS[turn % LENGTHS.length] as number;
  const ids = Array.from({ length }, (_, i) => long[(turn + i) % long.length] as number);
  const options = { maxTokens: 4, stopTokens: [], temperature: turn % 2, seed: turn };
  switch (turn % 6) {
    case 0:
      return read(generate(model, ids, options), 9);
    case 1:
      return read(generate(model, ids, { ...options, draft: promptLookup({ shortest: 1 }), draftTokens: 2 }), 9);
    case 2:
      return read(generate(model, ids, { ...options, cache }), 9);
    case 3:
      return read(generateBatch(model, [ids, ids.slice(0, 3)], options), 2);
    case 4: {
      const controller = new AbortController();
      const texts = generate(model, ids, { ...options, signal: controller.signal });
      await texts.next();
      controller.abort("enough");
      return read(texts, 9).catch((error) => expect(error).toBe("enough"));
    }
    default: {
      using state = model.newState({ capacity: 80, rollback: 2 });
      return await read(generate(model, ids, { ...options, state }), 2);
    }
  }
}

/** What is held when nothing is in flight and all garbage is collected. */
async function held() {
  const buffers = await liveBuffers(device);
  for (let i = 0; i < 4; i++) {
    collect();
    await new Promise((done) => setImmediate(done));
  }
  const { rss, external, arrayBuffers, heapUsed } = process.memoryUsage();
  return { buffers, native: device.counters.liveBytes, external: external + arrayBuffers, heapUsed, rss };
}

const MiB = 2 ** 20;
const times = Number(process.env.MLXTS_SOAK ?? repeated(240));

it(`${times} generations leave no memory behind`, async () => {
  // The cache is full then, and the model has its blocks.
  for (let turn = 0; turn < 60; turn++) await generation(turn);
  const before = await held();
  for (let turn = 0; turn < times; turn++) await generation(turn);
  const after = await held();
  if (process.env.MLXTS_SOAK) process.stdout.write(`${JSON.stringify({ times, before, after })}\n`);
  expect([after.buffers, after.native]).toEqual([before.buffers, before.native]);
  expect(after.external - before.external).toBeLessThan(MiB);
  expect(after.heapUsed - before.heapUsed).toBeLessThan(8 * MiB);
}, 3_600_000);
