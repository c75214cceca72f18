import { describe, expect, it } from "vitest";
import { Device, type Tensor } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";

describe("recordings", () => {
  const device = testDevice();

  function record(x: Tensor, middle: Tensor, out: Tensor) {
    const encoder = device.encoder();
    increment(encoder, { x, out: middle });
    increment(encoder, { x: middle, out });
    return encoder.finish();
  }
  const three = () => [0, 1, 2].map(() => device.tensor("u32", [16])) as [Tensor<"u32">, Tensor<"u32">, Tensor<"u32">];

  it("run as often as wanted, on what lies in the tensors then", async () => {
    const [x, middle, out] = three();
    const recording = record(x, middle, out);
    const { dispatches } = device.counters;
    for (const start of [0, 10, 20]) {
      x.write(new Uint32Array(16).fill(start));
      await recording.replay();
      expect([...out.readSync()]).toEqual(Array(16).fill(start + 2));
    }
    expect([recording.dispatches, recording.barriers]).toEqual([2, 1]);
    expect(device.counters.dispatches).toBe(dispatches);
    void recording.replay();
    recording.dispose();
    recording.dispose();
    expect(recording.disposed).toBe(true);
    expect(message(() => recording.replay())).toBe("the recording has been disposed");
    await device.encoder().commit();
  });

  it("refuse to run when one of their tensors is gone", async () => {
    const [x, middle, out] = three();
    const recording = record(x, middle, out);
    await recording.replay();
    middle.dispose();
    expect(caught(() => recording.replay())).toMatchObject({
      code: "Disposed",
      message: "the tensor `out` of a recorded dispatch has been disposed",
    });
  });

  it("refuse to run when the arena of one of their tensors was reset", async () => {
    using arena = device.arena(4096);
    const [x, , out] = three();
    const recording = record(x, arena.alloc("u32", [16]), out);
    await recording.replay();
    arena.reset();
    expect(caught(() => recording.replay()).code).toBe("Disposed");
  });

  it("take other tensors in place of theirs", async () => {
    const [x, middle, out] = three();
    const recording = record(x, middle, out);
    const [y, , result] = three();
    y.write(new Uint32Array(16).fill(7));
    const bound = recording.rebind([
      [x, y],
      [out, result],
    ]);
    x.dispose();
    await bound.replay();
    expect([...result.readSync()]).toEqual(Array(16).fill(9));
    expect([...out.readSync()]).toEqual(Array(16).fill(0));
    expect([bound.dispatches, bound.barriers]).toEqual([2, 1]);
  });

  it("tell views apart whose offsets and lengths have the same digits", async () => {
    const all = device.tensor("u32", [128]);
    // 164 bytes at byte 4, and 4 bytes at byte 416.
    const [long, short] = [all.slice(1, 42), all.slice(104, 105)];
    const encoder = device.encoder();
    const outs = [long, short].map((x) => increment(encoder, { x }));
    const other = device.tensor("u32", [41], Array(41).fill(7));
    await encoder
      .finish()
      .rebind([[long, other]])
      .replay();
    expect(outs.map((out) => out.readSync()[0])).toEqual([8, 1]);
  });

  it("tell which tensors they bind: as the same views", () => {
    const [x, middle, out] = three();
    const recording = record(x, middle, out);
    expect([x, middle, out, x.view(0, [4, 4])].map((tensor) => recording.binds(tensor))).toEqual(Array(4).fill(true));
    const others = [x.slice(0, 8), x.slice(8, 16), x.cast("f32"), device.tensor("u32", [16])];
    expect(others.map((tensor) => recording.binds(tensor))).toEqual(Array(4).fill(false));
    const bound = recording.rebind([[x, others[3] as typeof x]]);
    expect([bound.binds(x), bound.binds(others[3] as typeof x)]).toEqual([false, true]);
    expect(message(() => recording.binds(1 as never))).toBe("recording.binds: `tensor` must be a Tensor, got 1");
  });

  it("place barriers anew, and refuse overlaps", async () => {
    const [a, b, c] = three();
    const d = device.tensor("u32", [16]);
    const encoder = device.encoder();
    increment(encoder, { x: a, out: b });
    increment(encoder, { x: c, out: d });
    const recording = encoder.finish();
    expect(recording.barriers).toBe(0);
    const chained = recording.rebind([[c, b]]);
    expect(chained.barriers).toBe(1);
    await chained.replay();
    expect(d.readSync()[0]).toBe(2);
    const wide = device.tensor("u32", [20]);
    expect(
      message(() =>
        recording.rebind([
          [a, wide.view(0, [16])],
          [b, wide.view(4, [16])],
        ]),
      ),
    ).toBe("increment: `out` must not overlap `x`, got overlapping views");
  });

  it("refuse tensors of another kind", () => {
    const [x, middle, out] = three();
    const recording = record(x, middle, out);
    expect(message(() => recording.rebind([[x, device.tensor("u32", [15])]]))).toBe(
      "recording.rebind: `pairs` must keep dtype and bytes (u32, 64), got u32, 60",
    );
    expect(message(() => recording.rebind([[x, device.tensor("f32", [16])]]))).toBe(
      "recording.rebind: `pairs` must keep dtype and bytes (u32, 64), got f32, 64",
    );
    expect(message(() => recording.rebind([[1 as never, x]]))).toBe(
      "recording.rebind: `pairs` must be pairs of tensors, got 1",
    );
    using other = Device.open("cpu");
    expect(message(() => recording.rebind([[x, other.tensor("u32", [16])]]))).toBe(
      "increment: `x` must belong to the encoder's device, got a tensor of another device",
    );
  });

  it("keep the barriers that were asked for", () => {
    const [x, middle, out] = three();
    const encoder = device.encoder({ barriers: "manual" });
    increment(encoder, { x, out: middle });
    encoder.barrier();
    increment(encoder, { x: middle, out });
    const recording = encoder.finish();
    expect(recording.rebind([[x, device.tensor("u32", [16])]]).barriers).toBe(1);
  });
});
