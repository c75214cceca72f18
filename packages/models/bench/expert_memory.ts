// Decode steps of a model whose experts are read from its checkpoint when they are needed:
// npm run bench:expert-memory -- CHECKPOINT [--expert-memory BYTES] [--threads N] [--warm 24] [--steps 24] [--prompt 0]
// Run it where memory is limited, in a control group of its own for example, with a file that is not in memory yet.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Device } from "@mlxts/core";
import { Decoder, loadModel, prefill } from "@mlxts/models";

const { values, positionals } = parseArgs({
  options: {
    "expert-memory": { type: "string" },
    threads: { type: "string" },
    warm: { type: "string", default: "24" },
    steps: { type: "string", default: "24" },
    prompt: { type: "string", default: "0" },
  },
  allowPositionals: true,
});
const [directory] = positionals;
if (directory === undefined) throw new Error("give a checkpoint directory");
const [warm, steps, prompt] = [values.warm, values.steps, values.prompt].map(Number) as [number, number, number];
const expertMemory = values["expert-memory"];

/** Bytes that the system has read from disks for this process: Linux tells. */
const bytesRead = () => Number(/^read_bytes: (\d+)/m.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);

async function measured(name: string, tokens: number, work: () => Promise<unknown>): Promise<void> {
  const [start, before] = [performance.now(), bytesRead()];
  await work();
  const [ms, read] = [performance.now() - start, bytesRead() - before];
  console.log(
    `${name}: ${((tokens * 1000) / ms).toFixed(2)} tokens/s, ${(ms / tokens).toFixed(1)} ms and ` +
      `${(read / tokens / 1e6).toFixed(1)} MB read a token, ${(read / ms / 1e6).toFixed(2)} GB/s`,
  );
}

using device = Device.open("cpu", values.threads ? { threads: Number(values.threads) } : {});
using model = await loadModel(device, directory, {
  activationDtype: "bf16",
  ...(expertMemory && { expertMemory: Number(expertMemory) }),
});
using state = model.newState({ capacity: prompt + warm + steps });
// Tokens far apart, so that a random model takes other experts for each.
const token = (i: number) => (i * 7919 + 13) % model.vocabSize;
const ids = Array.from({ length: prompt }, (_, i) => token(i));
if (prompt > 0) await measured(`prompt of ${prompt} tokens`, prompt, () => prefill(model, state, ids));
using decoder = new Decoder(model, state);
const decode = async (from: number, count: number) => {
  for (let i = from; i < from + count; i++) await decoder.next(token(i));
};
await decode(prompt, warm);
await measured(`decode of ${steps} tokens`, steps, () => decode(prompt + warm, steps));
