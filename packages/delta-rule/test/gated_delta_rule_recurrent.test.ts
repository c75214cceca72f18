import { type Device, FLOATS, type RawArray, type Tensor } from "@mlxts/core";
import type { CaseInput } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { encodeRecurrent, type RuleTensors } from "../src/gated_delta_rule_recurrent.ts";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import type { RuleOptions } from "../src/options.ts";
import { expectSame, piece, type Row, rowOf, run, tokenBits, tokensOf, VARIANTS } from "./row_calls.ts";

const LOG = ["logState", "logKeys", "logDeltas", "logGates"];
const KEPT = ["lastStates", ...LOG];
/** Sequences without tokens come first, between others, and last. */
const CU = [0, 0, 5, 6, 6, 13, 13];
const STATES = { lastTokens: 3, snapshotEvery: 2 };

/** A place for what is kept of one row in CU's sequences, full of 7. */
function keptOutputs(device: Device, { state }: Row, tokens: Record<string, Tensor>, N: number) {
  const { k, v, g } = tokens as Record<"k" | "v" | "g", Tensor>;
  const [n, T] = [STATES.lastTokens, k.shape[1] as number];
  const shapes: Record<string, readonly number[]> = {
    finalState: [N, ...state],
    snapshots: [Math.floor(T / STATES.snapshotEvery), ...state],
    lastStates: [N, n, ...state],
    logState: [N, ...state],
    logKeys: [N, n, ...k.shape.slice(2)],
    logDeltas: [N, n, ...v.shape.slice(2)],
    logGates: [N, n, ...g.shape.slice(2)],
  };
  const full = (shape: readonly number[]) => new Float32Array(shape.reduce((x, y) => x * y, 1)).fill(7);
  const outputs = Object.entries(shapes).map(([name, shape]) => [name, device.tensor("f32", shape, full(shape))]);
  return Object.fromEntries(outputs) as Record<string, Tensor>;
}

for (const [name, open] of DEVICES)
  describe(`gatedDeltaRuleRecurrent on ${name}`, () => {
    for (const [index, [variant, setting]] of Object.entries(VARIANTS).entries()) {
      const act = FLOATS[index % FLOATS.length] as (typeof FLOATS)[number];

      it(`${variant}, ${act}: cut anywhere, with the state carried, the bits are those of one call`, async () => {
        using device = open();
        const row = rowOf(setting, act);
        const whole = await run(device, row);
        for (const cut of Array.from({ length: row.T - 1 }, (_, t) => t + 1)) {
          const first = await run(device, row, { end: cut });
          const second = await run(device, row, { begin: cut, state: first.finalState as RawArray });
          expectSame(`o up to ${cut}`, first.o, tokenBits(whole.o, row.T, 0, cut));
          expectSame(`o from ${cut} on`, second.o, tokenBits(whole.o, row.T, cut, row.T));
          expectSame(`state, cut at ${cut}`, second.finalState, whole.finalState);
        }
      });

      if (!setting.masked)
        it(`${variant}, ${act}: packed sequences give the bits of calls of their own`, async () => {
          using device = open();
          const N = CU.length - 1;
          const row = rowOf(setting, act, N);
          const all = await run(device, row, { cu: CU, options: STATES, ask: ["snapshots", ...KEPT] });
          let snapshots = 0;
          for (let s = 0; s < N; s++) {
            const [begin, end] = [CU[s] as number, CU[s + 1] as number];
            const state = piece(row.initialState, s, N);
            if (begin === end) {
              expectSame(`state of ${s}`, piece(all.finalState, s, N), state);
              expectSame(`log of ${s}`, piece(all.logState, s, N), state);
              expectSame(`last state of ${s}`, piece(piece(all.lastStates, s, N), 0, STATES.lastTokens), state);
              continue;
            }
            const count = Math.floor((end - begin) / STATES.snapshotEvery);
            const ask = count > 0 ? ["snapshots", ...KEPT] : KEPT;
            const own = await run(device, row, { begin, end, state, options: STATES, ask });
            expectSame(`o of ${s}`, tokenBits(all.o, row.T, begin, end), own.o);
            for (const output of ["finalState", ...KEPT])
              expectSame(`${output} of ${s}`, piece(all[output], s, N), own[output]);
            for (let i = 0; i < count; i++, snapshots++)
              expectSame(
                `snapshot ${i} of ${s}`,
                piece(all.snapshots, snapshots, Math.floor(row.T / STATES.snapshotEvery)),
                piece(own.snapshots, i, count),
              );
          }
        });

      it(`${variant}, ${act}: snapshots and last states are those of calls that end there`, async () => {
        using device = open();
        const row = rowOf(setting, act);
        const [every, n] = [4, 5];
        const options = { snapshotEvery: every, lastTokens: n };
        const plain = await run(device, row);
        const whole = await run(device, row, { options, ask: ["snapshots", ...KEPT] });
        expectSame("o, with and without them", whole.o, plain.o);
        expectSame("state, with and without them", whole.finalState, plain.finalState);
        for (let i = 0; i < 3; i++) {
          const at = every * (i + 1);
          const snapshot = piece(whole.snapshots, i, 3);
          expectSame(`snapshot ${i}`, snapshot, (await run(device, row, { end: at })).finalState);
          const rest = await run(device, row, { begin: at, state: snapshot });
          expectSame(`o from snapshot ${i} on`, rest.o, tokenBits(whole.o, row.T, at, row.T));
          expectSame(`state from snapshot ${i} on`, rest.finalState, whole.finalState);
        }
        for (let slot = 0; slot < n; slot++) {
          const ended = await run(device, row, { end: row.T - slot });
          expectSame(`state ${slot} tokens before the end`, piece(whole.lastStates, slot, n), ended.finalState);
        }
        const before = await run(device, row, { end: row.T - n });
        expectSame("state before the log", whole.logState, before.finalState);
      });
    }

    it.each([
      ["masked", 13, undefined],
      ["channels, log2, masked, kv", 13, undefined],
      ["as it comes", 13, CU],
      ["channels, linear, tiled", 13, CU],
      ["log2, tiled, kv", 13, [0, 9, 13]],
    ] as const)("%s: what follows chunks is as if it had all gone token by token", async (variant, T, cu) => {
      using device = open();
      const setting = VARIANTS[variant] as (typeof VARIANTS)[string];
      const bounds = cu ?? [0, T];
      const [N, BT, n] = [bounds.length - 1, 4, STATES.lastTokens];
      const row = rowOf({ ...setting, T }, "bf16", N);
      const part = { ...(cu && { cu }), options: STATES };
      const whole = await run(device, row, { ...part, ask: ["snapshots", ...KEPT] });
      const starts: number[] = [];
      const states = row.initialState.slice() as Float32Array;
      for (let s = 0; s < N; s++) {
        const [begin, end] = [bounds[s] as number, bounds[s + 1] as number];
        const start = end - begin > n ? Math.floor((end - begin - n) / BT) * BT : 0;
        starts.push(start);
        if (start === 0) continue;
        const state = piece(row.initialState, s, N);
        const before = await run(device, row, { begin, end: begin + start, state });
        states.set(before.finalState as Float32Array, (s * states.length) / N);
      }
      const tokens = tokensOf(device, row);
      const kept = keptOutputs(device, row, tokens, N);
      const { q, v, g } = tokens as Record<"q" | "v" | "g", Tensor>;
      const o = device.tensor("bf16", v.shape, new Uint16Array(v.size).fill(7));
      const tensors = {
        ...{ mask: undefined, cuSeqlens: cu && device.tensor("i32", [N + 1], cu) },
        ...{ ...tokens, ...kept, o, initialState: device.tensor("f32", [N, ...row.state], states) },
      };
      const [, , Hk, K] = q.shape as [number, number, number, number];
      const [, , H, V] = v.shape as [number, number, number, number];
      const dims = { B: 1, T, Hk, H, K, V, N, packed: cu !== undefined, channels: g.shape.length === 4 ? K : 1 };
      const defaults = { gate: "ln", gqa: "block", stateLayout: "vk", qkNorm: "none", qkNormEps: 1e-6 } as const;
      const options = { ...defaults, ...row.case.options, ...STATES } as unknown as RuleOptions;
      const encoder = device.encoder();
      const given = tensors as unknown as RuleTensors;
      encodeRecurrent(encoder, "test", given, dims, options, { chunkLength: BT, keepsLast: true });
      await encoder.commit();
      for (const output of ["finalState", ...KEPT]) expectSame(output, await kept[output]?.read(), whole[output]);
      const now = await o.read();
      const snapshots = (await kept.snapshots?.read()) as Float32Array;
      let taken = 0;
      for (let s = 0; s < N; s++) {
        const [begin, end] = [bounds[s] as number, bounds[s + 1] as number];
        const first = begin + (starts[s] as number);
        expect(tokenBits(now, T, begin, first).every((bits) => bits === 7)).toBe(true);
        if (first < end) expectSame("o", tokenBits(now, T, first, end), tokenBits(whole.o, T, first, end));
        for (let at = STATES.snapshotEvery; at <= end - begin; at += STATES.snapshotEvery, taken++) {
          const snapshot = piece(snapshots, taken, Math.floor(T / STATES.snapshotEvery));
          if (at <= first - begin) expect(snapshot.every((x) => x === 7)).toBe(true);
          else expectSame("snapshot", snapshot, piece(whole.snapshots, taken, Math.floor(T / STATES.snapshotEvery)));
        }
      }
    });

    it.each([
      [[1, 5, 13], "got 1 at position 0"],
      [[-1, 5, 13], "got -1 at position 0"],
      [[0, 5, 12], "got 12 at position 2"],
      [[0, 5, 14], "got 14 at position 2"],
      [[0, -3, 13], "got -3 at position 1"],
      [[0, 5, 4, 13], "got 4 at position 2"],
      [[...new Array(66).fill(3, 1).fill(0, 0, 1), 2, 13], "got 2 at position 66"],
    ])("refuses cuSeqlens %s and writes nothing", async (cu, got) => {
      using device = open();
      const N = cu.length - 1;
      const row = rowOf({ ...(VARIANTS["as it comes"] as (typeof VARIANTS)[string]), K: 8 }, "f32", N);
      const tokens = tokensOf(device, row) as Record<"q" | "k" | "v" | "g" | "beta", Tensor>;
      const o = device.tensor("f32", tokens.v.shape, new Float32Array(tokens.v.size).fill(7));
      const kept = { ...keptOutputs(device, row, tokens, N), o };
      const encoder = device.encoder();
      const cuSeqlens = device.tensor("i32", [N + 1], cu);
      gatedDeltaRuleRecurrent(encoder, { ...tokens, ...kept, cuSeqlens }, { scale: 1, ...STATES });
      const message = `gatedDeltaRuleRecurrent: \`cuSeqlens\` must begin with 0, not decrease and end with 13, ${got}`;
      await expect(encoder.commit()).rejects.toThrow(message);
      for (const output of Object.values(kept)) expect(output.typedArray().every((x) => x === 7)).toBe(true);
    });

    it.each(["q", "k", "v", "g", "beta", "initialState"])("NaN in %s of a sequence stays there", async (poisoned) => {
      using device = open();
      const cu = [0, 4, 9, 13];
      const row = rowOf(VARIANTS["channels, linear, tiled"] as (typeof VARIANTS)[string], "f32", 3);
      const part = { cu, options: STATES, ask: ["snapshots", ...KEPT] };
      const clean = await run(device, row, part);
      const inputs = { ...row.case.inputs };
      const initialState = row.initialState.slice() as Float32Array;
      const input = inputs[poisoned] as CaseInput;
      const data = Float64Array.from(input.data);
      if (poisoned === "initialState") initialState.fill(Number.NaN, data.length, 2 * data.length);
      else data.fill(Number.NaN, (4 * data.length) / row.T, (5 * data.length) / row.T);
      inputs[poisoned] = { ...input, data };
      const wrong = { ...row, case: { ...row.case, inputs }, initialState };
      const now = await run(device, wrong, part);
      for (const s of [0, 2]) {
        const [begin, end] = cu.slice(s, s + 2) as [number, number];
        expectSame(`o of ${s}`, tokenBits(now.o, row.T, begin, end), tokenBits(clean.o, row.T, begin, end));
        for (const output of ["finalState", ...KEPT])
          expectSame(`${output} of ${s}`, piece(now[output], s, 3), piece(clean[output], s, 3));
      }
      const touched = tokenBits(now.o, row.T, 4, 9) as Float32Array;
      expect(touched.some(Number.isNaN)).toBe(true);
    });
  });
