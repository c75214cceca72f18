import { encodeNumbers, FLOATS } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { causalConv1d } from "../src/index.ts";

const random = new Random(13);

const DIMS = { T: 37, C: 45, W: 4 };

for (const [name, open] of DEVICES)
  for (const act of FLOATS)
    for (const state of [act, "f32"] as const)
      it(`causalConv1d ${act} on ${name}: any cut of T gives the same bits, state ${state}`, async () => {
        const { T, C, W } = DIMS;
        using device = open();
        const x = encodeNumbers(act, random.normals(T * C)) as Uint16Array;
        const weight = device.tensor(act, [C, W], random.normals(C * W));
        const bias = device.tensor(act, [C], random.normals(C));
        const whole = device.encoder();
        const expected = causalConv1d(
          whole,
          { x: device.tensor(act, [1, T, C], x), weight, bias, finalState: device.tensor(state, [1, W - 1, C]) },
          { activation: "silu" },
        );
        await whole.commit();
        const y = await expected.y.read();
        for (const cuts of [
          [1, 1, 1, 1, 33],
          [2, 3, 5, 27],
          [36, 1],
          [7, 30],
        ]) {
          const carried = device.tensor(state, [1, W - 1, C]);
          let begin = 0;
          for (const length of cuts) {
            const encoder = device.encoder();
            const piece = device.tensor(act, [1, length, C], x.slice(begin * C, (begin + length) * C));
            const result = causalConv1d(
              encoder,
              { x: piece, weight, bias, ...(begin > 0 && { initialState: carried }), finalState: carried },
              { activation: "silu" },
            );
            await encoder.commit();
            expect(sameBytes(await result.y.read(), y.slice(begin * C, (begin + length) * C))).toBe(true);
            begin += length;
          }
          expect(sameBytes(await carried.read(), (await expected.finalState?.read()) as Uint16Array)).toBe(true);
        }
      });

/** Sequences of many lengths in one row, among them empty ones. */
const LENGTHS = [0, 5, 1, 0, 0, 64, 2, 33, 3, 31, 0];

for (const [name, open] of DEVICES)
  describe(`causalConv1d on ${name}`, () => {
    for (const act of FLOATS)
      for (const more of [0, 5])
        it(`${act}: packed sequences have the bits of calls of their own, ${more} rows more in the state`, async () => {
          const { C, W } = DIMS;
          using device = open();
          const R = W - 1 + more;
          const N = LENGTHS.length;
          const T = LENGTHS.reduce((a, b) => a + b, 0);
          const x = encodeNumbers(act, random.normals(T * C)) as Uint16Array;
          const states = encodeNumbers(act, random.normals(N * R * C)) as Uint16Array;
          const weight = device.tensor(act, [C, W], random.normals(C * W));
          const bias = device.tensor(act, [C], random.normals(C));
          const starts = LENGTHS.map((_, s) => LENGTHS.slice(0, s).reduce((a, b) => a + b, 0));
          const encoder = device.encoder();
          const state = device.tensor(act, [N, R, C], states);
          const packed = causalConv1d(
            encoder,
            {
              x: device.tensor(act, [1, T, C], x),
              weight,
              bias,
              initialState: state,
              finalState: state,
              cuSeqlens: device.tensor("i32", [N + 1], [...starts, T]),
            },
            { activation: "silu" },
          );
          await encoder.commit();
          const [y, after] = [(await packed.y.read()) as Uint16Array, (await state.read()) as Uint16Array];
          for (const [s, length] of LENGTHS.entries()) {
            const begin = (starts[s] as number) * C;
            const own = states.slice(s * R * C, (s + 1) * R * C);
            if (length === 0) {
              expect(sameBytes(after.slice(s * R * C, (s + 1) * R * C), own)).toBe(true);
              continue;
            }
            const alone = device.encoder();
            const single = causalConv1d(
              alone,
              {
                x: device.tensor(act, [1, length, C], x.slice(begin, begin + length * C)),
                weight,
                bias,
                initialState: device.tensor(act, [1, R, C], own),
                finalState: true,
              },
              { activation: "silu" },
            );
            await alone.commit();
            expect(sameBytes(y.slice(begin, begin + length * C), await single.y.read())).toBe(true);
            const left = (await single.finalState?.read()) as Uint16Array;
            expect(sameBytes(after.slice(s * R * C, (s + 1) * R * C), left)).toBe(true);
          }
        });

    it("a recording takes what cuSeqlens says when it runs", async () => {
      using device = open();
      const { T, C, W } = DIMS;
      const given = {
        x: device.tensor("bf16", [1, T, C], random.normals(T * C)),
        weight: device.tensor("bf16", [C, W], random.normals(C * W)),
        initialState: device.tensor("bf16", [3, W - 1, C], random.normals(3 * (W - 1) * C)),
        finalState: true,
      } as const;
      const cuSeqlens = device.tensor("i32", [4], [0, 0, 0, T]);
      const encoder = device.encoder();
      const { y, finalState } = causalConv1d(encoder, { ...given, cuSeqlens });
      const recording = encoder.finish();
      for (const bounds of [
        [0, 10, 10, T],
        [0, T, T, T],
        [0, 1, 35, T],
      ]) {
        cuSeqlens.write(Int32Array.from(bounds));
        await recording.replay();
        const again = device.encoder();
        const fresh = causalConv1d(again, { ...given, cuSeqlens: device.tensor("i32", [4], bounds) });
        await again.commit();
        expect(sameBytes(await y.read(), await fresh.y.read())).toBe(true);
        const [left, expected] = [finalState, fresh.finalState].map((state) => state?.read() as Promise<Uint16Array>);
        expect(sameBytes((await left) as Uint16Array, (await expected) as Uint16Array)).toBe(true);
      }
    });

    it("a longer final state without an initial one begins with zeros", async () => {
      using device = open();
      const { C, W } = DIMS;
      for (const T of [1, 5, 40]) {
        const x = random.normals(2 * T * C);
        const encoder = device.encoder();
        const finalState = device.tensor("f32", [2, 8, C], new Float64Array(16 * C).fill(Number.NaN));
        const weight = device.tensor("f32", [C, W], random.normals(C * W));
        causalConv1d(encoder, { x: device.tensor("f32", [2, T, C], x), weight, finalState });
        await encoder.commit();
        const expected = Float32Array.from({ length: 16 * C }, (_, i) => {
          const [n, t, c] = [Math.floor(i / C / 8), T - 8 + (Math.floor(i / C) % 8), i % C];
          return t < 0 ? 0 : (x[(n * T + t) * C + c] as number);
        });
        expect(sameBytes(await finalState.read(), expected)).toBe(true);
      }
    });

    it("a masked run has the bits of one that is not there, but for its zeros", async () => {
      using device = open();
      const { C, W } = DIMS;
      const [T, skipped] = [20, 13];
      const weight = device.tensor("bf16", [C, W], random.normals(C * W));
      const x = random.normals(T * C).map((value, i) => (i < skipped * C ? Number.NaN : value));
      const mask = device.tensor(
        "u8",
        [1, T],
        Array.from({ length: T }, (_, t) => (t < skipped ? 0 : 1)),
      );
      const encoder = device.encoder();
      const padded = causalConv1d(encoder, { x: device.tensor("bf16", [1, T, C], x), weight, mask, finalState: true });
      const part = device.tensor("bf16", [1, T - skipped, C], x.slice(skipped * C));
      const alone = causalConv1d(encoder, { x: part, weight, finalState: true });
      await encoder.commit();
      const y = (await padded.y.read()) as Uint16Array;
      expect(y.subarray(0, skipped * C).every((bits) => bits === 0)).toBe(true);
      expect(sameBytes(y.slice(skipped * C), await alone.y.read())).toBe(true);
      expect(
        sameBytes((await padded.finalState?.read()) as Uint16Array, (await alone.finalState?.read()) as Uint16Array),
      ).toBe(true);
    });

    it.each([
      [[1, 3, 9], "got 1 at position 0"],
      [[0, 3, 8], "got 8 at position 2"],
      [[0, 3, 10], "got 10 at position 2"],
      [[0, -2, 9], "got -2 at position 1"],
      [[0, 4, 3, 9], "got 3 at position 2"],
    ])("writes nothing if cuSeqlens is %j", async (cuSeqlens, got) => {
      using device = open();
      const N = cuSeqlens.length - 1;
      const seven = (...shape: number[]) =>
        device.tensor("f32", shape, new Float64Array(shape.reduce((a, b) => a * b, 1)).fill(7));
      const [x, weight, y, finalState] = [seven(1, 9, 5), seven(5, 4), seven(1, 9, 5), seven(N, 3, 5)];
      const encoder = device.encoder();
      causalConv1d(encoder, { x, weight, cuSeqlens: device.tensor("i32", [N + 1], cuSeqlens), y, finalState });
      await expect(encoder.commit()).rejects.toThrow(
        `causalConv1d: \`cuSeqlens\` must begin with 0, not decrease and end with 9, ${got}`,
      );
      for (const tensor of [y, finalState]) expect(tensor.typedArray().every((value) => value === 7)).toBe(true);
    });
  });
