// Measures several sequences at once, the prefix cache and guesses: node scripts/run-source.mjs packages/models/bench/sequences.ts
// [CHECKPOINT] [--threads 1] [--runs 5]. The least wall and the least processor time of several runs.
import { parseArgs } from "node:util";
import { Device } from "@mlxts/core";
import {
  Decoder,
  generate,
  loadModel,
  PrefixCache,
  prefill,
  prefillBatch,
  promptLookup,
  Tokenizer,
} from "@mlxts/models";

const { values, positionals } = parseArgs({
  options: { threads: { type: "string", default: "1" }, runs: { type: "string", default: "5" } },
  allowPositionals: true,
});
const directory = positionals[0] ?? "fixtures/tiny-qwen3.5";
const runs = Number(values.runs);
using device = Device.open("cpu", { threads: Number(values.threads) });
using model = await loadModel(device, directory);
const ids = Array.from({ length: 1024 }, (_, i) => (i * 7919) % model.vocabSize);

interface Cost {
  wallMs: number;
  cpuMs: number;
}

/** The least wall time and the least processor time of several runs of `work`, without `prepare`. */
async function least<T>(prepare: () => Promise<T> | T, work: (prepared: T) => Promise<unknown>): Promise<Cost> {
  let best: Cost = { wallMs: Number.POSITIVE_INFINITY, cpuMs: Number.POSITIVE_INFINITY };
  for (let i = 0; i < runs; i++) {
    const prepared = await prepare();
    const before = process.cpuUsage();
    const start = performance.now();
    await work(prepared);
    const wallMs = performance.now() - start;
    const { user, system } = process.cpuUsage(before);
    best = { wallMs: Math.min(best.wallMs, wallMs), cpuMs: Math.min(best.cpuMs, (user + system) / 1000) };
  }
  return best;
}

const show = ({ wallMs, cpuMs }: Cost, tokens: number) =>
  `${wallMs.toFixed(1)} ms (${cpuMs.toFixed(1)} ms of processor), ${((tokens / wallMs) * 1000).toFixed(0)} tokens/s`;

console.log(`${directory}, ${values.threads} threads, level ${device.level}, activations ${model.activationDtype}`);

const STEPS = 100;
for (const sequences of [1, 2, 4, 8, 16]) {
  const cost = await least(
    () => {
      const state = model.newState({ sequences, capacity: STEPS + 8 });
      return { state, decoder: new Decoder(model, state) };
    },
    async ({ state, decoder }) => {
      let next: (number | undefined)[] = ids.slice(0, sequences);
      for (let i = 0; i < STEPS; i++) next = await decoder.nextBatch(next);
      decoder.dispose();
      state.dispose();
    },
  );
  console.log(`decode, ${sequences} sequences, ${STEPS} steps: ${show(cost, sequences * STEPS)}`);
}

const lengths = [17, 300, 64, 129, 5, 200, 90, 33];
const ragged = lengths.map((length, i) => ids.slice(i, i + length));
const tokens = lengths.reduce((a, b) => a + b, 0);
const apart = await least(
  () => {},
  async () => {
    for (const prompt of ragged) {
      using state = model.newState({ capacity: 300 });
      await prefill(model, state, prompt);
    }
  },
);
console.log(`prompts of ${lengths.join(", ")} tokens one by one: ${show(apart, tokens)}`);
const together = await least(
  () => {},
  async () => {
    using state = model.newState({ capacity: 300, sequences: lengths.length });
    await prefillBatch(model, state, ragged);
  },
);
console.log(`the same in one pass: ${show(together, tokens)}`);

for (const prefix of [256, 512, 768]) {
  const prompt = ids.slice(0, prefix + 40);
  const run = async (cache?: PrefixCache) => {
    using state = model.newState({ capacity: 1024 });
    await prefill(model, state, prompt, cache ? { cache } : {});
  };
  const warm = new PrefixCache(model);
  await run(warm);
  const none = await least(
    () => {},
    () => run(),
  );
  const cold = await least(() => new PrefixCache(model), run);
  const hit = await least(() => warm, run);
  console.log(`prompt of ${prompt.length}, no cache: ${show(none, prompt.length)}`);
  console.log(`  filling one: ${show(cold, prompt.length)}; ${prefix} from it: ${show(hit, prompt.length)}`);
  console.log(`  ${warm.blocks} blocks, ${(warm.byteLength / 2 ** 20).toFixed(1)} MiB`);
}

const tokenizer = new Tokenizer(directory);
const texts = ["export class EventEmitter {\n    ", "function add(a: number, b: number)", "import { "];
for (const sampling of [{ temperature: 0 }, { temperature: 0.8, topP: 0.95, seed: 1 }])
  for (const draftTokens of [0, 2, 4, 7]) {
    const total = { draftedTokens: 0, acceptedTokens: 0, generatedTokens: 0 };
    const cost = await least(
      () => Object.assign(total, { draftedTokens: 0, acceptedTokens: 0, generatedTokens: 0 }),
      async () => {
        for (const text of texts) {
          const timings = { draftedTokens: 0, acceptedTokens: 0, generatedTokens: 0 };
          const guess = draftTokens > 0 ? { draft: promptLookup(), draftTokens } : {};
          const options = { ...sampling, ...guess, maxTokens: 200, stopTokens: [], timings };
          for await (const _ of generate(model, tokenizer.encode(text), options));
          for (const key of ["draftedTokens", "acceptedTokens", "generatedTokens"] as const) total[key] += timings[key];
        }
      },
    );
    const { draftedTokens, acceptedTokens, generatedTokens } = total;
    const share =
      draftedTokens > 0 ? `, ${((100 * acceptedTokens) / draftedTokens).toFixed(0)} % of ${draftedTokens} right` : "";
    console.log(
      `temperature ${sampling.temperature}, guesses of up to ${draftTokens}${share}: ${show(cost, generatedTokens)}`,
    );
  }
