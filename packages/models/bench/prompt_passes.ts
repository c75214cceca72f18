// What a pass over a prompt costs the host: node scripts/run-source.mjs packages/models/bench/prompt_passes.ts CHECKPOINT [TOKENS] [DEVICE]
// `record`: the ops' calls. `finish`: what the encoder does with them at the end, and the call into native code. `replay` and
// `commit`: the same pass run by a recording, as all passes of a prompt are that are like the one before, or once; to the
// call's return, and to the end of the work.
import { Device, type DeviceKind, type Tensor } from "@mlxts/core";
import { loadModel } from "@mlxts/models";
import { OPTIMIZE_PROMPT } from "../src/optimize.ts";
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

/** Records the pass and ends the recording. */
function pass<T>(end: (encoder: ReturnType<Device["encoder"]>, keep: [Tensor]) => T) {
  arena.reset();
  const start = performance.now();
  const encoder = device.encoder({ arena, optimize: OPTIMIZE_PROMPT });
  const hidden = model.encode(encoder, state, tokens.tokens, { path: model.paths[0] as never });
  const logits = model.encodeLogits(encoder, hidden, [count - 1]);
  const recorded = performance.now();
  const ended = end(encoder, [logits]);
  return { ended, record: recorded - start, end: performance.now() - recorded };
}

const median = (times: readonly number[]) => [...times].sort((a, b) => a - b)[times.length >> 1] as number;
const rows: Record<string, Record<string, string>> = {};
const note = (row: string, times: Record<string, number>) => {
  rows[row] = Object.fromEntries(Object.entries(times).map(([name, ms]) => [`${name}, ms`, ms.toFixed(2)]));
};

const recorded: { record: number; finish: number }[] = [];
let dispatches = 0;
for (let i = 0; i < PASSES; i++) {
  const { ended, record, end } = pass((encoder, keep) => encoder.finish({ keep }));
  dispatches = ended.dispatches;
  ended.dispose();
  recorded.push({ record, finish: end });
}
for (const i of [0, 1, 2, 5]) note(`pass ${i + 1}`, recorded[i] as (typeof recorded)[number]);
const later = recorded.slice(PASSES / 2);
note("later", { record: median(later.map((x) => x.record)), finish: median(later.map((x) => x.finish)) });

const committed: number[] = [];
for (let i = 0; i < RUNS; i++) {
  const { ended, end } = pass((encoder, keep) => ({ submission: encoder.commit({ keep }) }));
  const start = performance.now();
  await ended.submission;
  committed.push(end + performance.now() - start);
}
const { ended: recording } = pass((encoder, keep) => encoder.finish({ keep }));
const calls: number[] = [];
const replayed: number[] = [];
for (let i = 0; i < RUNS; i++) {
  const start = performance.now();
  const submission = recording.replay();
  calls.push(performance.now() - start);
  await submission;
  replayed.push(performance.now() - start);
}
recording.dispose();
note("commit to its end", { run: median(committed) });
note("first replay", { call: calls[0] as number, run: replayed[0] as number });
note("replay", { call: median(calls.slice(1)), run: median(replayed.slice(1)) });
console.log(`${folder}: ${dispatches} dispatches over ${count} tokens on ${device.kind}`);
console.table(rows);
