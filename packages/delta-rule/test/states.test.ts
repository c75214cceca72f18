// States that calls leave: what continues from them has the bits of a call that never stopped.
import { FLOATS, type Tensor } from "@mlxts/core";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { gatedDeltaRollback, gatedDeltaRule } from "../src/index.ts";
import {
  type Bits,
  EVERYTHING,
  equal,
  KINDS,
  kindCase,
  type Options,
  optionsOf,
  PATHS,
  part,
  rule,
  stateOf,
  statesOf,
  tokensOf,
} from "./rule_calls.ts";

const T = 100;
const NAMES = Object.keys(KINDS) as (keyof typeof KINDS)[];
const LOG = ["logState", "logKeys", "logDeltas", "logGates"] as const;
type Device = ReturnType<(typeof DEVICES)[number][1]>;

/** The state before the last `rejected` tokens, on the host. */
async function rollback(device: Device, log: Bits, shapes: Record<string, Tensor>, rejected: number[], o: Options) {
  const inputs = Object.fromEntries(
    LOG.map((name) => [name, device.tensor("f32", (shapes[name] as Tensor).shape, log[name] as Float32Array)]),
  ) as Record<(typeof LOG)[number], Tensor>;
  const encoder = device.encoder();
  const { gate, gqa, stateLayout } = o as Partial<Options>;
  const conventions = Object.fromEntries(Object.entries({ gate, gqa, stateLayout }).filter(([, value]) => value));
  const finalState = gatedDeltaRollback(
    encoder,
    { ...inputs, rejected: device.tensor("i32", [rejected.length], rejected), finalState: inputs.logState },
    conventions,
  ) as Tensor | { finalState: Tensor };
  await encoder.commit();
  return ("finalState" in finalState ? finalState.finalState : finalState).read();
}

for (const [name, open] of DEVICES)
  describe(`states on ${name}`, () => {
    for (const kind of NAMES)
      for (const where of PATHS)
        for (const masked of [false, true])
          it(`${kind}${masked ? ", masked" : ""}, ${where.path} ${where.chunkLength}: every snapshot continues`, async () => {
            using device = open();
            const testCase = kindCase(kind, { masked });
            const options = optionsOf(testCase, where);
            for (const act of FLOATS) {
              const state = statesOf(device, testCase);
              const given = { ...tokensOf(device, testCase, act), initialState: state };
              const plain = await rule(device, { ...given, finalState: true }, options);
              const whole = await rule(
                device,
                { ...given, finalState: true, snapshots: true },
                { ...options, snapshotEvery: 32 },
              );
              for (const output of ["o", "finalState"]) expect(equal(plain[output], whole[output])).toBe(true);
              for (const [i, end] of [32, 64, 96].entries()) {
                // What was saved is restored on another device.
                using other = open();
                const saved = stateOf(other, state, part(whole.snapshots, i, 3));
                expect(equal(await saved.read(), part(whole.snapshots, i, 3))).toBe(true);
                const before = await rule(
                  other,
                  {
                    ...tokensOf(other, testCase, act, 0, end),
                    initialState: statesOf(other, testCase),
                    finalState: true,
                  },
                  options,
                );
                expect(equal(before.finalState, part(whole.snapshots, i, 3)), `snapshot ${i}`).toBe(true);
                expect(equal(before.o, part(whole.o, 0, T, end)), `o before ${end}`).toBe(true);
                const rest = await rule(
                  other,
                  { ...tokensOf(other, testCase, act, end), initialState: saved, finalState: saved },
                  options,
                );
                expect(equal(rest.o, part(whole.o, end, T, T - end)), `o after ${end}`).toBe(true);
                expect(equal(rest.finalState, whole.finalState), `final after ${end}`).toBe(true);
              }
            }
          });

    for (const kind of NAMES)
      for (const masked of [false, true])
        for (const act of FLOATS)
          it(`${act}, ${kind}${masked ? ", masked" : ""}: what is rolled back never was, one token after the other`, async () => {
            using device = open();
            const testCase = kindCase(kind, { masked });
            const options = optionsOf(testCase, { path: "recurrent", lastTokens: 7 });
            const state = statesOf(device, testCase);
            const encoder = device.encoder();
            const outputs = gatedDeltaRule(
              encoder,
              {
                ...tokensOf(device, testCase, act, 0, 30),
                initialState: state,
                ...EVERYTHING,
                snapshots: undefined,
              } as never,
              options,
            ) as Record<string, Tensor>;
            await encoder.commit();
            const log: Bits = {};
            for (const part of [...LOG, "lastStates"]) log[part] = await (outputs[part] as Tensor).read();
            for (let rejected = 0; rejected <= 7; rejected++) {
              const back = await rollback(device, log, outputs, [rejected], options);
              const never = await rule(
                device,
                { ...tokensOf(device, testCase, act, 0, 30 - rejected), initialState: state, finalState: true },
                optionsOf(testCase, { path: "recurrent" }),
              );
              expect(equal(back, never.finalState), `${rejected} rejected`).toBe(true);
              if (rejected < 7) expect(equal(part(log.lastStates, rejected, 7), back), `slot ${rejected}`).toBe(true);
              // And other tokens after it.
              const next = tokensOf(device, testCase, act, 40, 43);
              const ran = [back, never.finalState].map((from) =>
                rule(
                  device,
                  { ...next, initialState: stateOf(device, state, from as Float32Array), finalState: true },
                  optionsOf(testCase, { path: "recurrent" }),
                ),
              );
              const [a, b] = await Promise.all(ran);
              for (const output of ["o", "finalState"]) expect(equal(a?.[output], b?.[output])).toBe(true);
            }
          });

    for (const kind of NAMES)
      for (const chunkLength of [16, 32] as const)
        it(`${kind}, chunk ${chunkLength}: the log takes tokens back to the bits of chunks and then tokens`, async () => {
          using device = open();
          const cu = [0, 3, 3, 50, 100];
          const N = cu.length - 1;
          const n = 6;
          const testCase = kindCase(kind, { packed: cu });
          for (const act of FLOATS) {
            const options = optionsOf(testCase, { path: "chunk", chunkLength, lastTokens: n });
            const state = statesOf(device, testCase);
            const cuSeqlens = device.tensor("i32", [N + 1], cu);
            const encoder = device.encoder();
            const outputs = gatedDeltaRule(
              encoder,
              {
                ...tokensOf(device, testCase, act),
                initialState: state,
                cuSeqlens,
                ...EVERYTHING,
                snapshots: undefined,
              } as never,
              options,
            ) as Record<string, Tensor>;
            await encoder.commit();
            const log: Bits = {};
            for (const part of [...LOG, "lastStates", "finalState"]) log[part] = await (outputs[part] as Tensor).read();
            for (const rejected of [
              [0, 0, 0, 0],
              [1, 0, 6, 2],
              [3, 0, 1, 6],
              // More than there are.
              [6, 6, 5, 5],
            ]) {
              const back = await rollback(device, log, outputs, rejected, options);
              for (let s = 0; s < N; s++) {
                const [begin, end] = cu.slice(s, s + 2) as [number, number];
                const tokens = end - begin;
                const stays = end - Math.min(rejected[s] as number, tokens);
                const chunked = tokens > n ? Math.floor((tokens - n) / chunkLength) * chunkLength : 0;
                const at = statesOf(device, testCase, s, s + 1);
                const carried = { initialState: at, finalState: at };
                const only = optionsOf(testCase, {});
                if (chunked > 0)
                  await rule(
                    device,
                    { ...tokensOf(device, testCase, act, begin, begin + chunked), ...carried },
                    { ...only, path: "chunk", chunkLength },
                  );
                if (stays > begin + chunked)
                  await rule(
                    device,
                    { ...tokensOf(device, testCase, act, begin + chunked, stays), ...carried },
                    { ...only, path: "recurrent" },
                  );
                expect(equal(part(back, s, N), await at.read()), `${rejected} sequence ${s}`).toBe(true);
                if ((rejected[s] as number) === 0)
                  expect(equal(part(log.finalState, s, N), await at.read()), `final state ${s}`).toBe(true);
              }
            }
          }
        });

    for (const kind of NAMES)
      for (const where of PATHS)
        it(`${kind}, ${where.path} ${where.chunkLength}: skipped tokens reach nothing`, async () => {
          using device = open();
          const testCase = kindCase(kind, { masked: true });
          const mask = testCase.inputs.mask?.data as ArrayLike<number>;
          const options = optionsOf(testCase, { ...where, snapshotEvery: 32, lastTokens: 9 });
          for (const act of FLOATS) {
            const given = { ...tokensOf(device, testCase, act), initialState: statesOf(device, testCase) };
            const whole = await rule(device, { ...given, ...EVERYTHING }, options);
            // They hold NaN; with numbers in their place all bits stay.
            const other = { ...given };
            for (const name of ["q", "k", "v", "g", "beta"] as const) {
              const tensor = tokensOf(device, testCase, act)[name];
              tensor.write((await tensor.readNumbers()).map((x) => (Number.isNaN(x) ? 0.5 : x)));
              other[name] = tensor;
            }
            const filled = await rule(device, { ...other, ...EVERYTHING }, options);
            for (const output of Object.keys(whole)) expect(equal(whole[output], filled[output]), output).toBe(true);
            for (let t = 0; t < T; t++) {
              const row = part(whole.o, t, T);
              if (mask[t] === 0) expect(equal(row, row.slice().fill(0 as never)), `o of token ${t}`).toBe(true);
            }
            if (where.path === "chunk") continue;
            // One token after the other they might as well not be there.
            const names = ["q", "k", "v", "g", "beta"] as const;
            const kept = Array.from({ length: T }, (_, t) => t).filter((t) => mask[t] !== 0);
            const fewer = Object.fromEntries(
              await Promise.all(
                names.map(async (name) => {
                  const tensor = given[name] as Tensor;
                  const numbers = await tensor.readNumbers();
                  const row = numbers.length / T;
                  const data = kept.flatMap((t) => [...numbers.slice(t * row, (t + 1) * row)]);
                  return [name, device.tensor(tensor.dtype, [1, kept.length, ...tensor.shape.slice(2)], data)] as const;
                }),
              ),
            );
            const compact = await rule(
              device,
              {
                ...(fewer as never as typeof given),
                initialState: given.initialState,
                finalState: true,
                mask: undefined,
              },
              optionsOf(testCase, { path: "recurrent" }),
            );
            expect(equal(compact.finalState, whole.finalState)).toBe(true);
            for (const [i, t] of kept.entries())
              expect(equal(part(compact.o, i, kept.length), part(whole.o, t, T)), `o of token ${t}`).toBe(true);
          }
        });
  });
