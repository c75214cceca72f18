// Packed sequences are the separate ones, bit for bit; also when a recording meets other sequences.
import { FLOATS, type Tensor } from "@mlxts/core";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { gatedDeltaRule } from "../src/index.ts";
import {
  EVERYTHING,
  equal,
  KINDS,
  kindCase,
  type Options,
  optionsOf,
  PATHS,
  part,
  rule,
  statesOf,
  tokensOf,
} from "./rule_calls.ts";

const PACKED = [0, 0, 15, 47, 63, 100, 100];
const N = PACKED.length - 1;
const T = 100;
const NAMES = Object.keys(KINDS) as (keyof typeof KINDS)[];

for (const [name, open] of DEVICES)
  describe(`packed sequences on ${name}`, () => {
    for (const kind of NAMES)
      for (const where of PATHS)
        for (const act of FLOATS)
          it(`${act}, ${kind}, ${where.path} ${where.chunkLength}: the bits of separate calls`, async () => {
            using device = open();
            const testCase = kindCase(kind, { packed: PACKED });
            const keeps = { snapshotEvery: where.chunkLength, lastTokens: 5 };
            const options = optionsOf(testCase, { ...where, ...keeps });
            const initialState = statesOf(device, testCase);
            const cuSeqlens = device.tensor("i32", [N + 1], PACKED);
            const all = { ...tokensOf(device, testCase, act), initialState, cuSeqlens };
            const whole = await rule(device, { ...all, ...EVERYTHING }, options);
            const bare = await rule(device, { ...all, finalState: true }, optionsOf(testCase, where));
            let snapshot = 0;
            for (let s = 0; s < N; s++) {
              const [begin, end] = PACKED.slice(s, s + 2) as [number, number];
              const state = statesOf(device, testCase, s, s + 1);
              const tokens = end - begin;
              if (tokens === 0) {
                expect(equal(part(whole.finalState, s, N), await state.read())).toBe(true);
                expect(equal(part(bare.finalState, s, N), await state.read())).toBe(true);
                continue;
              }
              const given = { ...tokensOf(device, testCase, act, begin, end), initialState: state };
              const count = Math.floor(tokens / where.chunkLength);
              const asked = { ...EVERYTHING, snapshots: count > 0 ? true : undefined };
              const alone = await rule(device, { ...given, ...(asked as typeof EVERYTHING) }, options);
              const plain = await rule(device, { ...given, finalState: true }, optionsOf(testCase, where));
              expect(equal(part(whole.o, begin, T, tokens), alone.o), `o of ${s}`).toBe(true);
              expect(equal(part(bare.o, begin, T, tokens), plain.o), `o alone of ${s}`).toBe(true);
              expect(equal(part(bare.finalState, s, N), plain.finalState), `final of ${s}`).toBe(true);
              for (const output of ["finalState", "lastStates", "logState", "logKeys", "logDeltas", "logGates"])
                expect(equal(part(whole[output], s, N), alone[output]), `${output} of ${s}`).toBe(true);
              const places = Math.floor(T / where.chunkLength);
              if (count > 0)
                expect(
                  equal(part(whole.snapshots, snapshot, places, count), alone.snapshots),
                  `snapshots of ${s}`,
                ).toBe(true);
              snapshot += count;
            }
          });

    for (const kind of NAMES.slice(0, 2))
      for (const where of PATHS)
        it(`${kind}, ${where.path} ${where.chunkLength}: a recording takes what cuSeqlens says when it runs`, async () => {
          using device = open();
          const testCase = kindCase(kind, { packed: PACKED });
          const keeps = { snapshotEvery: 32, lastTokens: 5 };
          const options = optionsOf(testCase, { ...where, ...keeps });
          const initialState = statesOf(device, testCase);
          const cuSeqlens = device.tensor("i32", [N + 1], PACKED);
          const given = { ...tokensOf(device, testCase, "bf16"), initialState, cuSeqlens, ...EVERYTHING };
          const encoder = device.encoder({ arena: device.arena(1 << 22) });
          const outputs = gatedDeltaRule(encoder, given, options) as Record<string, Tensor | undefined>;
          const recording = encoder.finish();
          for (const cu of [PACKED, [0, 100, 100, 100, 100, 100, 100], [0, 1, 2, 33, 65, 97, 100], PACKED]) {
            cuSeqlens.write(Int32Array.from(cu));
            await recording.replay();
            const fresh = await rule(device, { ...given, cuSeqlens: device.tensor("i32", [N + 1], cu) }, options);
            const taken = cu.slice(1).reduce((sum, end, s) => sum + Math.floor((end - (cu[s] as number)) / 32), 0);
            for (const [output, bits] of Object.entries(fresh)) {
              const replayed = await (outputs[output] as Tensor).read();
              const places = output === "snapshots" ? Math.floor(T / 32) : 1;
              const count = output === "snapshots" ? taken : 1;
              expect(equal(part(replayed, 0, places, count), part(bits, 0, places, count)), `${output} ${cu}`).toBe(
                true,
              );
            }
          }
        });

    for (const where of PATHS)
      it(`${where.path} ${where.chunkLength}: NaN stays in its sequence`, async () => {
        using device = open();
        const testCase = kindCase("a gate for each head", { packed: PACKED });
        const options: Options = optionsOf(testCase, where);
        const cuSeqlens = device.tensor("i32", [N + 1], PACKED);
        const given = { ...tokensOf(device, testCase, "f32"), initialState: statesOf(device, testCase), cuSeqlens };
        const clean = await rule(device, { ...given, finalState: true }, options);
        for (const poisoned of ["q", "k", "v", "g", "beta"] as const) {
          const tokens = tokensOf(device, testCase, "f32");
          const numbers = await tokens[poisoned].readNumbers();
          // All of token 20, in the third sequence, from 15 to 47.
          tokens[poisoned].write(numbers.fill(Number.NaN, (20 * numbers.length) / T, (21 * numbers.length) / T));
          const dirty = await rule(device, { ...given, ...tokens, finalState: true }, options);
          for (let s = 0; s < N; s++) {
            if (s === 2) continue;
            const [begin, end] = PACKED.slice(s, s + 2) as [number, number];
            expect(equal(part(dirty.o, begin, T, end - begin), part(clean.o, begin, T, end - begin))).toBe(true);
            expect(equal(part(dirty.finalState, s, N), part(clean.finalState, s, N))).toBe(true);
          }
          const final = part(dirty.finalState, 2, N) as Float32Array;
          expect(final.some(Number.isNaN)).toBe(poisoned !== "q");
          const o = part(dirty.o, 20, T) as Float32Array;
          expect(o.every(Number.isNaN)).toBe(true);
        }
      });
  });
