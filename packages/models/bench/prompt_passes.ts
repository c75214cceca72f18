// What a pass over a prompt costs the host: node scripts/run-source.mjs packages/models/bench/prompt_passes.ts CHECKPOINT [TOKENS] [DEVICE]
// `record`: layer by layer, with what encoders do at their ends and the calls into native code, for states of their own.
// `replay` and `commit`: the same pass run by recordings, as all passes of a prompt are that are like the one before, or once;
// to the call's return, and to the end of the work.
import { type CommandEncoder, Device, type DeviceKind, type Tensor } from "@mlxts/core";
import { loadModel } from "@mlxts/models";
import { type LayeredPass, recordLayers } from "../src/layers.ts";
import { PassTokens } from "../src/tokens.ts";

const PASSES = 40;
const RUNS = 5;
const [, , folder, tokensText = "64", kind] = process.argv;
if (!folder) throw new Error("name a checkpoint's directory");
const count = Number(tokensText);

using device = Device.open(kind as DeviceKind | undefined);
using model = await loadModel(device, folder);
using state = model.newState({ capacity: count });
using tokens = new PassTokens(device, [count]);
tokens.write(state, [Array.from({ length: count }, (_, i) => (i * 7919 + 3) % model.vocabSize)]);
using arena = device.arena(1 << 22, { grow: true });

/** Records the pass; `end` ends each of its encoders. */
function pass<T>(end: (encoder: CommandEncoder, keep: Tensor[]) => T): { parts: T[]; ms: number } {
  arena.reset();
  const start = performance.now();
  const parts: T[] = [];
  const subject = { state, tokens: tokens.tokens, options: { path: model.paths[0] as never } };
  const layered = model.layered(state, subject.tokens, subject.options) as LayeredPass;
  const { hidden, encoder } = recordLayers(layered, subject, arena, (full) => parts.push(end(full, [])));
  parts.push(end(encoder, [model.encodeLogits(encoder, hidden, [count - 1])]));
  return { parts, ms: performance.now() - start };
}

const median = (times: readonly number[]) => [...times].sort((a, b) => a - b)[times.length >> 1] as number;
const rows: Record<string, Record<string, string>> = {};
const note = (row: string, times: Record<string, number>) => {
  rows[row] = Object.fromEntries(Object.entries(times).map(([name, ms]) => [`${name}, ms`, ms.toFixed(2)]));
};
const finish = (encoder: CommandEncoder, keep: Tensor[]) => encoder.finish({ keep });

const recorded: number[] = [];
let dispatches = 0;
for (let i = 0; i < PASSES; i++) {
  const { parts, ms } = pass(finish);
  dispatches = parts.reduce((sum, part) => sum + part.dispatches, 0);
  for (const part of parts) part.dispose();
  recorded.push(ms);
}
for (const i of [0, 1, 2, 5]) note(`pass ${i + 1}`, { record: recorded[i] as number });
note("later", { record: median(recorded.slice(PASSES / 2)) });

const committed: number[] = [];
for (let i = 0; i < RUNS; i++) {
  const start = performance.now();
  for (const submission of pass((encoder, keep) => encoder.commit({ keep })).parts) await submission;
  committed.push(performance.now() - start);
}
const { parts: recordings } = pass(finish);
const replayed: { call: number; end: number }[] = [];
for (let i = 0; i < RUNS; i++) {
  const start = performance.now();
  const submissions = recordings.map((recording) => recording.replay());
  const call = performance.now() - start;
  for (const submission of submissions) await submission;
  replayed.push({ call, end: performance.now() - start });
}
for (const recording of recordings) recording.dispose();
note("commit", { end: median(committed) });
note("first replay", replayed[0] as (typeof replayed)[number]);
note("later replays", {
  call: median(replayed.slice(1).map((x) => x.call)),
  end: median(replayed.slice(1).map((x) => x.end)),
});
console.log(`${dispatches} dispatches, ${count} tokens, ${device.kind}`);
console.table(rows);
