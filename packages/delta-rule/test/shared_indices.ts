// Ops of this package whose inputs decide addresses, for attacks by somebody who writes them meanwhile.
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { causalConv1d, convRollback, deltaGatesRule, gatedDeltaRollback, gatedDeltaRule } from "../src/index.ts";

const [N, T, H, K, V, C, M] = [12, 192, 2, 16, 16, 512, 16] as const;
const FAR = [0x7fffffff, -0x80000000, -1];
const all = (value: number) => new Array<number>(N).fill(value);

/** Rows of T tokens cut in three ways: all in the first sequence, all in the last one, and evenly. */
const CUTS = [
  Array.from({ length: N + 1 }, (_, s) => (s === 0 ? 0 : T)),
  Array.from({ length: N + 1 }, (_, s) => (s === N ? T : 0)),
  Array.from({ length: N + 1 }, (_, s) => (s * T) / N),
];
const WRONG_CUTS = [...FAR, T + 1, 5 * T, 1000, 1, 0];

const rule = (path: "recurrent" | "chunk", channels: boolean, lastTokens?: number): Attack => ({
  right: CUTS,
  wrong: WRONG_CUTS,
  encode(encoder, cuSeqlens, output) {
    const { device } = encoder;
    const f32 = (...shape: number[]) => device.tensor("f32", shape);
    const gate = channels ? [H, K] : [H];
    const n = lastTokens ?? 0;
    gatedDeltaRule(
      encoder,
      {
        ...{ q: f32(1, T, H, K), k: f32(1, T, H, K), v: f32(1, T, H, V), g: f32(1, T, ...gate), beta: f32(1, T, H) },
        cuSeqlens,
        o: output("f32", [1, T, H, V]),
        finalState: output("f32", [N, H, V, K]),
        snapshots: output("f32", [T / M, H, V, K]),
        ...(n > 0 && {
          lastStates: output("f32", [N, n, H, V, K]),
          logState: output("f32", [N, H, V, K]),
          logKeys: output("f32", [N, n, H, K]),
          logDeltas: output("f32", [N, n, H, V]),
          logGates: output("f32", [N, n, ...gate]),
        }),
      } as never,
      { scale: 1, path, chunkLength: M, snapshotEvery: M, ...(lastTokens && { lastTokens }) },
    );
  },
});

export const attacks: Record<string, Attack> = {
  causalConv1d: {
    right: CUTS,
    wrong: WRONG_CUTS,
    encode(encoder, cuSeqlens, output) {
      const { device } = encoder;
      const inputs = { x: device.tensor("f32", [1, T, C]), weight: device.tensor("f32", [C, 4]), cuSeqlens };
      causalConv1d(encoder, { ...inputs, y: output("f32", [1, T, C]), finalState: output("f32", [N, 3, C]) });
    },
  },
  convRollback: {
    right: [all(0), all(6)],
    wrong: [...FAR, 7, 1000],
    encode(encoder, rejected, output) {
      const history = encoder.device.tensor("f32", [N, 9, C]);
      convRollback(encoder, { history, rejected, finalState: output("f32", [N, 3, C]) }, { kernelSize: 4 });
    },
  },
  gatedDeltaRollback: {
    right: [all(0), all(8)],
    wrong: [...FAR, 9, 1000],
    encode(encoder, rejected, output) {
      const f32 = (...shape: number[]) => encoder.device.tensor("f32", shape);
      const log = {
        logState: f32(N, H, V, K),
        logKeys: f32(N, 8, H, K),
        logDeltas: f32(N, 8, H, V),
        logGates: f32(N, 8, H),
      };
      gatedDeltaRollback(encoder, { ...log, rejected, finalState: output("f32", [N, H, V, K]) });
    },
  },
  "deltaGatesRule, recurrent": {
    right: CUTS,
    wrong: WRONG_CUTS,
    encode(encoder, cuSeqlens, output) {
      const f32 = (...shape: number[]) => encoder.device.tensor("f32", shape);
      const gates = { a: f32(1, T, H), b: f32(1, T, H), aLog: f32(H), dtBias: f32(H) };
      deltaGatesRule(
        encoder,
        {
          ...{ q: f32(1, T, H, K), k: f32(1, T, H, K), v: f32(1, T, H, V), ...gates, cuSeqlens },
          ...{ o: output("f32", [1, T, H, V]), finalState: output("f32", [N, H, V, K]) },
        },
        { scale: 1, path: "recurrent" },
      );
    },
  },
  "gatedDeltaRule, recurrent": rule("recurrent", false),
  "gatedDeltaRule, recurrent with a log": rule("recurrent", true, 5),
  "gatedDeltaRule, fused chunks": rule("chunk", false),
  "gatedDeltaRule, fused chunks with a log": rule("chunk", false, 5),
  "gatedDeltaRule, stages": rule("chunk", true),
  "gatedDeltaRule, stages with a log": rule("chunk", true, 5),
};
