import { FLOATS, type FloatDtype } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { causalConv1d, convRollback } from "../src/index.ts";

const random = new Random(15);
const [N, C, W, MOST] = [3, 45, 4, 6] as const;
const R = W - 1 + MOST;

for (const [name, open] of DEVICES)
  describe(`convRollback on ${name}`, () => {
    for (const act of FLOATS)
      for (const state of [...new Set<FloatDtype>([act, "f32"])])
        for (const T of [1, 4, MOST, 11])
          it(`${act}, state ${state}: taken back after ${T} tokens, it goes on as if they had never been`, async () => {
            using device = open();
            const weight = device.tensor(act, [C, W], random.normals(C * W));
            const before = device.tensor(state, [N, R, C], random.normals(N * R * C));
            const tokens = random.normals(N * T * C);
            const x = (begin: number, end: number) => {
              const part = Array.from({ length: N }, (_, n) => tokens.subarray((n * T + begin) * C, (n * T + end) * C));
              return device.tensor(act, [N, end - begin, C], Float64Array.from(part.flatMap((rows) => [...rows])));
            };
            const whole = device.encoder();
            const { finalState: history } = causalConv1d(whole, {
              x: x(0, T),
              weight,
              initialState: before,
              finalState: true,
            });
            for (let rejected = 0; rejected <= Math.min(T, MOST); rejected++) {
              const encoder = device.encoder();
              const short =
                rejected < T
                  ? causalConv1d(encoder, { x: x(0, T - rejected), weight, initialState: before, finalState: true })
                      .finalState
                  : before;
              if (!history || !short) throw new Error("no state");
              // The last rows of the history at that time: what taking nothing back leaves of it.
              const none = device.tensor("i32", [N]);
              const expected = convRollback(encoder, { history: short, rejected: none }, { kernelSize: W });
              const counts = device.tensor("i32", [N], new Array(N).fill(rejected));
              if (rejected === 0) await whole.commit();
              const rolled = convRollback(encoder, { history, rejected: counts }, { kernelSize: W });
              const next = device.tensor(act, [N, 1, C], random.normals(N * C));
              const after = causalConv1d(encoder, { x: next, weight, initialState: rolled });
              const never = causalConv1d(encoder, { x: next, weight, initialState: short });
              await encoder.commit();
              expect(rolled.dtype).toBe(state);
              expect(sameBytes(await rolled.read(), await expected.read())).toBe(true);
              expect(sameBytes(await after.y.read(), await never.y.read())).toBe(true);
            }
          });

    it.each([
      [[0, 7, 0], "got 7 at sequence 1"],
      [[0, 6, -1], "got -1 at sequence 2"],
    ])("writes nothing if %j are to be taken back", async (counts, got) => {
      using device = open();
      const encoder = device.encoder();
      const history = device.tensor("f32", [N, R, C], random.normals(N * R * C));
      const state = device.tensor("f32", [N, W - 1, C], new Float64Array(N * (W - 1) * C).fill(7));
      convRollback(
        encoder,
        { history, rejected: device.tensor("i32", [N], counts), finalState: state },
        { kernelSize: W },
      );
      await expect(encoder.commit()).rejects.toMatchObject({
        code: "InvalidArgument",
        message: `convRollback: \`rejected\` must be at least 0 and at most the 6 tokens that \`history\` can take back, ${got}`,
      });
      expect(state.typedArray().every((value) => value === 7)).toBe(true);
    });

    it("copies bits, those of NaN too", async () => {
      using device = open();
      for (const act of FLOATS) {
        const bits =
          act === "f32"
            ? Uint8Array.from([1, 0, 0x80, 0x7f, 2, 0, 0, 0, 3, 0, 0xc0, 0xff])
            : Uint8Array.from([1, 0x7f, 1, 0xfc, 1, 0, 0xff, 0xff, 0, 0x80, 1, 0x7c]);
        const count = act === "f32" ? 3 : 6;
        const history = device.tensor(act, [1, count, 1]);
        history.buffer.write(bits, history.byteOffset);
        const encoder = device.encoder();
        const rejected = device.tensor("i32", [1], [1]);
        const state = convRollback(encoder, { history, rejected }, { kernelSize: count });
        await encoder.commit();
        const out = await state.read();
        expect([...new Uint8Array(out.buffer, out.byteOffset, out.byteLength)]).toEqual([
          ...bits.subarray(0, bits.length - bits.length / count),
        ]);
      }
    });
  });
