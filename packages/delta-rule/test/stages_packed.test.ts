// Each stage looks at cuSeqlens before it writes anything.
import type { CommandEncoder, Tensor } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import { DEVICES } from "../../../scripts/test-devices.ts";
import { chunkCumsum, chunkInverse, chunkKkt, chunkOutput, chunkState, chunkWu } from "../src/index.ts";

const [T, N, Hk, H, K, V, BT] = [40, 3, 1, 2, 8, 5, 16] as const;
const NT = Math.floor(T / BT) + N;
const options = { chunkLength: BT } as const;

const SHAPES = {
  ...{ q: [1, T, Hk, K], k: [1, T, Hk, K], v: [1, T, H, V], beta: [1, T, H], A: [1, T, H, BT], X: [1, T, H, BT] },
  ...{ w: [1, T, H, K], u: [1, T, H, V], h: [1, NT, H, V, K], vNew: [1, T, H, V], o: [1, T, H, V] },
  ...{ initialState: [N, H, V, K], finalState: [N, H, V, K], snapshots: [2, H, V, K] },
};
const gates = (channels: boolean) => (channels ? [1, T, H, K] : [1, T, H]);

type Name = keyof typeof SHAPES | "g" | "G" | "GLow" | "cuSeqlens";
type Stage = [outputs: readonly Name[], run: (encoder: CommandEncoder, t: Record<Name, Tensor>) => unknown];
const STAGES: Record<string, Stage> = {
  chunkCumsum: [["G", "GLow"], (e, { g, cuSeqlens, G, GLow }) => chunkCumsum(e, { g, cuSeqlens, G, GLow }, options)],
  chunkKkt: [["A"], (e, { k, beta, G, cuSeqlens, A }) => chunkKkt(e, { k, beta, G, cuSeqlens, A }, options)],
  chunkInverse: [["X"], (e, { A, cuSeqlens, X }) => chunkInverse(e, { A, cuSeqlens, X }, options)],
  chunkWu: [
    ["w", "u"],
    (e, { k, v, beta, G, X, cuSeqlens, w, u }) => chunkWu(e, { k, v, beta, G, X, cuSeqlens, w, u }, options),
  ],
  chunkState: [
    ["h", "vNew", "finalState", "snapshots"],
    (e, { k, w, u, G, initialState, cuSeqlens, h, vNew, finalState, snapshots }) => {
      const outputs = { h, vNew, finalState, snapshots };
      return chunkState(e, { k, w, u, G, initialState, cuSeqlens, ...outputs }, { ...options, snapshotEvery: BT });
    },
  ],
  chunkOutput: [
    ["o"],
    (e, { q, k, vNew, h, G, cuSeqlens, o }) =>
      chunkOutput(e, { q, k, vNew, h, G, cuSeqlens, o }, { ...options, scale: 1 }),
  ],
};

/** Contents, and what is said of them. */
const WRONG = [
  [[1, 5, 20, T], "got 1 at position 0"],
  [[0, 21, 20, T], "got 20 at position 2"],
  [[0, 5, -20, T], "got -20 at position 2"],
  [[0, 5, 20, T - 1], `got ${T - 1} at position 3`],
  [[0, 5, T, T + 1], `got ${T + 1} at position 3`],
] as const;

for (const [name, open] of DEVICES)
  describe(`cuSeqlens of the stages on ${name}`, () => {
    for (const [op, [outputs, run]] of Object.entries(STAGES))
      for (const channels of op === "chunkInverse" ? [false] : [false, true])
        for (const [cu, got] of WRONG)
          it(`${op}${channels ? ", a gate for each channel" : ""}: nothing is written where they are ${cu}`, async () => {
            using device = open();
            const shapes = { ...SHAPES, g: gates(channels), G: gates(channels), GLow: gates(channels) };
            const fill = (shape: readonly number[]) =>
              device.tensor("f32", shape, new Float32Array(shape.reduce((a, b) => a * b)).fill(0.25));
            const tensors = Object.fromEntries(Object.entries(shapes).map(([key, shape]) => [key, fill(shape)]));
            const encoder = device.encoder();
            run(encoder, { ...tensors, cuSeqlens: device.tensor("i32", [N + 1], cu) } as Record<Name, Tensor>);
            await expect(encoder.commit()).rejects.toThrow(
              `${op}: \`cuSeqlens\` must begin with 0, not decrease and end with ${T}, ${got}`,
            );
            for (const output of outputs)
              expect(
                tensors[output]?.typedArray().every((x) => x === 0.25),
                output,
              ).toBe(true);
          });
  });
