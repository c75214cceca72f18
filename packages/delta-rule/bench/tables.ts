// The tables of the README: npm run bench:delta-rule [-- --threads 1 --samples 15 --only scratch]. Both paths over the number of tokens
// beside onnxruntime-node, and scratch by the formula beside what an arena had to give.
import { parseArgs } from "node:util";
import { alternate, timedCase, timedPeer } from "@mlxts/bench";
import { Device, type FloatDtype } from "@mlxts/core";
import { gatedDeltaRule, type ScratchOptions, scratchBytes } from "../src/index.ts";
import { LAYERS, TOKENS } from "./crossover.bench.ts";
import { ruleBench } from "./rule.ts";

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "1" },
    samples: { type: "string", default: "15" },
    only: { type: "string" },
  },
});
const threads = Number(values.threads);
const samples = Number(values.samples);

const row = (cells: readonly (string | number)[]) => console.log(`| ${cells.join(" | ")} |`);
function head(cells: readonly string[]): void {
  row(cells);
  row(cells.map(() => "---"));
}
const time = (us: number | undefined) => (us === undefined ? "–" : us.toPrecision(3).replace(/e\+(\d)/, "e$1"));
const ms = (us: number | undefined) => (us === undefined ? "–" : `${Number(time(us / 1000))}`);

/** The smallest number of tokens from which chunks are at least 5 % faster, there and at every larger one. */
function crossover(times: readonly { recurrent: number; chunk: number }[]): string {
  const slow = times.findLastIndex(({ recurrent, chunk }) => chunk > recurrent * 0.95);
  const from = TOKENS[slow + 1];
  return from === undefined ? "not up to 2048" : `from ${from}`;
}

async function times(): Promise<void> {
  console.log(`Milliseconds, medians of ${samples} on ${threads} thread(s):\n`);
  for (const { dtypes, ...layer } of LAYERS) {
    const { Hk, H, K, V, channels } = layer;
    console.log(`Hk ${Hk}, H ${H}, K ${K}, V ${V}, a gate for each ${channels ? "channel" : "head"}:\n`);
    head(["T", ...dtypes.flatMap((dtype) => [`recurrent, ${dtype}`, `chunk, ${dtype}`]), "onnxruntime, f32"]);
    const all: Partial<Record<FloatDtype, { recurrent: number; chunk: number }[]>> = {};
    for (const T of TOKENS) {
      const cells: string[] = [];
      // A long call is measured in few samples: it is its own mean.
      const count = T >= 512 ? Math.min(samples, 5) : samples;
      let peer: number | undefined;
      for (const dtype of dtypes) {
        const [recurrent, chunk] = [
          ruleBench({ T, ...layer, dtype, path: "recurrent" }),
          ruleBench({ T, ...layer, dtype, path: "chunk" }),
        ];
        using device = Device.open("cpu", { threads });
        const other =
          peer === undefined && recurrent.peers?.[0] ? await timedPeer(recurrent.peers[0], threads) : undefined;
        const timed = [await timedCase(recurrent, device), await timedCase(chunk, device), ...(other ? [other] : [])];
        const [one, two, three] = (await alternate(timed, count)).map(({ median }) => median);
        const times = { recurrent: one as number, chunk: two as number };
        peer ??= three;
        all[dtype] = [...(all[dtype] ?? []), times];
        cells.push(ms(times.recurrent), ms(times.chunk));
      }
      row([T, ...cells, ms(peer)]);
    }
    const found = dtypes.map((dtype) => `${dtype} ${crossover(all[dtype] ?? [])}`);
    console.log(`\nChunks are at least 5 % faster: ${found.join(", ")}.\n`);
  }
}

const SHAPES: { shape: Parameters<typeof scratchBytes>[0]; options: ScratchOptions }[] = [
  { shape: { B: 1, T: 128, Hk: 2, H: 4, K: 128, V: 128, dtype: "bf16" }, options: { qkNorm: "sum-eps" } },
  { shape: { B: 1, T: 1000, Hk: 2, H: 4, K: 128, V: 1032, dtype: "f32" }, options: { qkNorm: "sum-eps" } },
  { shape: { B: 2, T: 200, Hk: 1, H: 1, K: 256, V: 520, dtype: "bf16" }, options: { chunkLength: 16, mask: true } },
  { shape: { B: 1, T: 300, Hk: 1, H: 2, K: 256, V: 520, dtype: "f16" }, options: { precision: "f32", sequences: 4 } },
  { shape: { B: 1, T: 512, Hk: 4, H: 8, K: 128, V: 128, dtype: "f32" }, options: { channelGates: true } },
  {
    shape: { B: 1, T: 100, Hk: 2, H: 2, K: 64, V: 64, dtype: "bf16" },
    options: { channelGates: true, lastTokensOnly: true, chunkLength: 32 },
  },
];

/** Bytes that a call took from an arena beside its outputs, and whether one kernel did the work. */
function taken({ shape, options }: (typeof SHAPES)[number]): { bytes: number; kernels: number } {
  const { B, T, Hk, H, K, V, dtype } = shape;
  const { channelGates, mask, sequences, lastTokensOnly, ...rest } = options;
  using device = Device.open();
  const arena = device.arena(2 * scratchBytes(shape, options));
  const encoder = device.encoder({ arena });
  const log = [
    ["logState", [sequences ?? B, H, V, K]],
    ["logKeys", [sequences ?? B, 1, Hk, K]],
    ["logDeltas", [sequences ?? B, 1, H, V]],
    ["logGates", [sequences ?? B, 1, H, ...(channelGates ? [K] : [])]],
  ] as const;
  gatedDeltaRule(
    encoder,
    {
      q: device.tensor(dtype, [B, T, Hk, K]),
      k: device.tensor(dtype, [B, T, Hk, K]),
      v: device.tensor(dtype, [B, T, H, V]),
      g: device.tensor("f32", [B, T, H, ...(channelGates ? [K] : [])]),
      beta: device.tensor("f32", [B, T, H]),
      o: device.tensor(dtype, [B, T, H, V]),
      ...(mask && { mask: device.tensor("u8", [B, T]) }),
      ...(sequences && { cuSeqlens: device.tensor("i32", [sequences + 1]) }),
      ...(lastTokensOnly && Object.fromEntries(log.map(([name, of]) => [name, device.tensor("f32", of)]))),
    },
    { scale: 1, path: "chunk", ...rest, ...(lastTokensOnly && { lastTokens: 1 }) },
  );
  return { bytes: arena.peakBytes, kernels: encoder.finish().dispatches };
}

function scratch(): void {
  console.log("Scratch, bytes:\n");
  head(["B, T, Hk, H, K, V, act", "options", "`scratchBytes`", "taken from the arena"]);
  for (const setting of SHAPES) {
    const { B, T, Hk, H, K, V, dtype } = setting.shape;
    const { bytes, kernels } = taken(setting);
    const options = Object.entries(setting.options).map(([name, value]) => `${name} ${value}`);
    const measured = kernels === 1 ? `${bytes} (one kernel)` : bytes;
    row([
      [B, T, Hk, H, K, V, dtype].join(", "),
      options.join(", "),
      scratchBytes(setting.shape, setting.options),
      measured,
    ]);
  }
}

if (values.only !== "scratch") await times();
if (values.only !== "times") scratch();
