// Numbers that ops refuse when they run, on the device: the submission fails, and no output is touched.
import { Device, type Tensor } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import {
  chunkCumsum,
  chunkInverse,
  chunkKkt,
  chunkOutput,
  chunkState,
  chunkWu,
  gatedDeltaRollback,
  gatedDeltaRule,
  gatedDeltaRuleRecurrent,
} from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());
const f32 = (...shape: number[]) => device.tensor("f32", shape);
const i32 = (...shape: number[]) => device.tensor("i32", shape);

/** One row of sequences. */
const PACKED = {
  q: f32(1, 40, 2, 16),
  k: f32(1, 40, 2, 16),
  v: f32(1, 40, 4, 8),
  g: f32(1, 40, 4, 16),
  beta: f32(1, 40, 4),
  cuSeqlens: i32(4),
};

async function fails(encode: (encoder: ReturnType<Device["encoder"]>) => unknown, outputs: Tensor[], message: string) {
  for (const output of outputs) output.write(new Float32Array(output.size).fill(7));
  const encoder = device.encoder();
  encode(encoder);
  await expect(encoder.commit()).rejects.toThrow(message);
  for (const output of outputs) expect(output.typedArray().every((x) => x === 7)).toBe(true);
}

describe("cuSeqlens that does not cut the row is refused by", () => {
  const WRONG: [number[], string][] = [
    [[1, 10, 20, 40], "got 1 at position 0"],
    [[0, 21, 20, 40], "got 20 at position 2"],
    [[0, 10, 20, 39], "got 39 at position 3"],
    [[0, 10, 41, 40], "got 41 at position 2"],
    [[0, -1, 20, 40], "got -1 at position 1"],
  ];
  const { cuSeqlens } = PACKED;
  const g = f32(1, 40, 4);
  const [o, state] = [f32(1, 40, 4, 8), f32(3, 4, 8, 16)];
  const [perToken, perKey, pairs] = [f32(1, 40, 4), f32(1, 40, 4, 16), f32(1, 40, 4, 16)];
  const rule = { ...PACKED, g, o, finalState: state };
  const scale = 1;
  const chunkLength = 16;
  const { k, beta } = PACKED;
  const values = PACKED.v;
  const [low, h, snapshots] = [f32(1, 40, 4, 16), f32(1, 5, 4, 8, 16), f32(2, 4, 8, 16)];
  const channels = { G: PACKED.g, cuSeqlens };
  type Encode = (encoder: ReturnType<Device["encoder"]>) => unknown;
  const OPS: Record<string, [Encode, Tensor[]]> = {
    "gatedDeltaRule, in chunks": [(e) => gatedDeltaRule(e, rule, { scale, path: "chunk", chunkLength }), [o, state]],
    "gatedDeltaRule, token by token": [(e) => gatedDeltaRule(e, rule, { scale, path: "recurrent" }), [o, state]],
    "gatedDeltaRule with a gate for each channel": [
      (e) => gatedDeltaRule(e, { ...rule, g: PACKED.g }, { scale, path: "chunk" }),
      [o, state],
    ],
    gatedDeltaRuleRecurrent: [(e) => gatedDeltaRuleRecurrent(e, rule, { scale }), [o, state]],
    chunkCumsum: [(e) => chunkCumsum(e, { g, cuSeqlens, G: perToken }, { chunkLength }), [perToken]],
    chunkKkt: [(e) => chunkKkt(e, { k, beta, G: g, cuSeqlens, A: pairs }, { chunkLength }), [pairs]],
    chunkInverse: [(e) => chunkInverse(e, { A: perKey, cuSeqlens, X: pairs }, { chunkLength }), [pairs]],
    chunkWu: [
      (e) => chunkWu(e, { k, v: values, beta, G: g, X: pairs, cuSeqlens, w: perKey, u: o }, { chunkLength }),
      [perKey, o],
    ],
    chunkState: [
      (e) => chunkState(e, { k, w: perKey, u: values, G: g, cuSeqlens, vNew: o, finalState: state }, { chunkLength }),
      [o, state],
    ],
    chunkOutput: [
      (e) =>
        chunkOutput(
          e,
          { q: PACKED.q, k, vNew: values, h: f32(1, 5, 4, 8, 16), G: g, cuSeqlens, o },
          { scale, chunkLength },
        ),
      [o],
    ],
    "chunkCumsum with a gate for each channel": [
      (e) => chunkCumsum(e, { g: PACKED.g, cuSeqlens, G: perKey, GLow: low }, { chunkLength }),
      [perKey, low],
    ],
    "chunkKkt with a gate for each channel": [
      (e) => chunkKkt(e, { k, beta, ...channels, A: pairs }, { chunkLength }),
      [pairs],
    ],
    "chunkWu with a gate for each channel": [
      (e) => chunkWu(e, { k, v: values, beta, ...channels, X: pairs, w: perKey, u: o }, { chunkLength }),
      [perKey, o],
    ],
    "chunkState with a gate for each channel": [
      (e) => {
        const outputs = { h, vNew: o, finalState: state, snapshots };
        chunkState(e, { k, w: perKey, u: values, ...channels, ...outputs }, { chunkLength, snapshotEvery: 16 });
      },
      [h, o, state, snapshots],
    ],
    "chunkOutput with a gate for each channel": [
      (e) => chunkOutput(e, { q: PACKED.q, k, vNew: values, h, ...channels, o }, { scale, chunkLength }),
      [o],
    ],
  };
  for (const [name, [encode, outputs]] of Object.entries(OPS))
    it(name, async () => {
      for (const [contents, got] of WRONG) {
        cuSeqlens.write(Int32Array.from(contents));
        await fails(encode, outputs, `\`cuSeqlens\` must begin with 0, not decrease and end with 40, ${got}`);
      }
    });
});

it("gatedDeltaRollback refuses to take back more than the log has", async () => {
  const given = {
    logState: f32(2, 4, 8, 16),
    logKeys: f32(2, 3, 2, 16),
    logDeltas: f32(2, 3, 4, 8),
    logGates: f32(2, 3, 4),
    rejected: i32(2),
    finalState: f32(2, 4, 8, 16),
  };
  for (const [contents, got] of [
    [[0, 4], "got 4 at sequence 1"],
    [[-1, 0], "got -1 at sequence 0"],
  ] as const) {
    given.rejected.write(Int32Array.from(contents));
    const message = `gatedDeltaRollback: \`rejected\` must be at least 0 and at most the 3 tokens of the log, ${got}`;
    await fails((encoder) => gatedDeltaRollback(encoder, given), [given.finalState], message);
  }
});
