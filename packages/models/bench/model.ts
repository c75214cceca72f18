// Whole-model figures: npm run bench:model -- [CHECKPOINT] [--threads 1]. Medians over many decode steps.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Device } from "@mlxts/core";
import { Decoder, loadModel, prefill } from "@mlxts/models";

const { values, positionals } = parseArgs({
  options: {
    threads: { type: "string" },
    tokens: { type: "string", default: "400" },
    activationDtype: { type: "string" },
  },
  allowPositionals: true,
});
const directory = positionals[0] ?? fileURLToPath(new URL("../../../fixtures/tiny-qwen3.5", import.meta.url));
const tokens = Number(values.tokens);
const median = (list: number[]) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)] as number;

using device = Device.open("cpu", values.threads ? { threads: Number(values.threads) } : {});
const model = await loadModel(
  device,
  directory,
  values.activationDtype ? { activationDtype: values.activationDtype as "bf16" } : {},
);
const ids = Array.from({ length: 512 }, (_, i) => (i * 7919) % model.vocabSize);

const prefillTimes: number[] = [];
for (let i = 0; i < 7; i++) {
  using state = model.newState({ capacity: ids.length });
  const start = performance.now();
  await prefill(model, state, ids);
  prefillTimes.push(performance.now() - start);
}

using state = model.newState({ capacity: 2 * tokens + 64 });
using decoder = new Decoder(model, state);
let id = 1;
for (let i = 0; i < 20; i++) id = await decoder.next(id);
const walls: number[] = [];
const kernels: number[] = [];
// Steps with and without the clock in turn: the machine's drift meets both alike.
for (let i = 0; i < tokens; i++) {
  const start = performance.now();
  id = await decoder.next(id);
  walls.push((performance.now() - start) * 1000);
  const { dispatches = [] } = await decoder.profile(id);
  kernels.push(dispatches.reduce((sum, { us }) => sum + us, 0));
}
const wall = median(walls);
const kernel = median(kernels);
console.log(
  `${directory}, ${device.limits.threads} threads, level ${device.level}, activationDtype ${model.activationDtype}`,
);
console.log(
  `prefill of ${ids.length} tokens: ${median(prefillTimes).toFixed(2)} ms, ${((ids.length / median(prefillTimes)) * 1000).toFixed(0)} tokens/s`,
);
console.log(`decode: ${wall.toFixed(0)} µs a token, ${(1e6 / wall).toFixed(0)} tokens/s`);
console.log(
  `one step: ${decoder.dispatches} dispatches, ${kernel.toFixed(0)} µs in kernels, ` +
    `${((wall - kernel) / decoder.dispatches).toFixed(2)} µs per dispatch outside kernels`,
);
model.dispose();
