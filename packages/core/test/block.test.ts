// Blocks: what an encoder has recorded, appended with other tensors.
import { describe, expect, it, vi } from "vitest";
import { Device as Devices, type Tensor, Tensor as TensorObject } from "../src/index.ts";
import { message, testDevice } from "./helpers.ts";
import { count, countMixFusion, mix } from "./kernels/chain.ts";
import { increment } from "./kernels/probe.ts";

const device = testDevice({ poison: true });
const words = (value = 0, n = 4, on = device) => on.tensor("u32", [n], Array(n).fill(value));
const values = (...tensors: Tensor[]) => tensors.map((tensor) => tensor.readSync()[0]);

/** out = x + 2 + b, of calls that fusion joins, with scratch between them. */
function encode(encoder: ReturnType<typeof device.encoder>, x: Tensor, b: Tensor, out: Tensor): void {
  mix(encoder, { a: count(encoder, { x }).next, b, out });
}

const WAYS = [
  ["as it was recorded", {}],
  ["optimized", { optimize: true }],
  ["optimized, with calls joined", { optimize: { fuse: [countMixFusion] } }],
] as const;

describe.each(WAYS)("a block, %s", (_, options) => {
  const [x, b, out] = [words(5), words(100), words()];
  const made = device.encoder(options);
  encode(made, x, b, out);
  const block = made.block([x, b, out]);

  it.each([{}, { optimize: true }])(
    "computes with other tensors what its ops compute, each after the one before: %j",
    async (into) => {
      using arena = device.arena(1 << 12);
      const chain = [words(1), words(), words(), words()] as const;
      const encoder = device.encoder({ arena, ...into });
      for (const i of [0, 1, 2] as const)
        encoder.append(block, [chain[i], words(10 ** (i + 1)), chain[i + 1] as Tensor]);
      await encoder.commit();
      expect(values(...chain)).toEqual([1, 13, 115, 1117]);
      expect(values(x, out)).toEqual([5, 0]);
    },
  );

  it("can be part of a recording, beside other dispatches", async () => {
    const [from, sum] = [words(1), words()];
    const encoder = device.encoder();
    const next = increment(encoder, { x: from });
    encoder.append(block, [next, b, sum]);
    increment(encoder, { x: sum, out: sum });
    using recording = encoder.finish();
    for (const [value, expected] of [
      [1, 105],
      [7, 111],
    ] as const) {
      from.write([value, value, value, value]);
      await recording.replay();
      expect(values(sum)).toEqual([expected]);
    }
  });

  it("tells what it is, and leaves its encoder disposed", () => {
    expect(block).toMatchObject({ tensors: 3, device });
    expect(block.dispatches).toBeGreaterThan(0);
    expect(message(() => made.commit())).toContain("must be recording, got a disposed encoder");
    expect(values(out)).toEqual([0]);
  });
});

describe("a block", () => {
  it("takes views of its tensors from the same places of others", async () => {
    const [both, out] = [words(0, 8), words()];
    const made = device.encoder({ optimize: true });
    increment(made, { x: both.slice(4, 8), out });
    const block = made.block([both, out]);
    const other = device.tensor("u32", [8], [0, 0, 0, 0, 40, 41, 42, 43]);
    const encoder = device.encoder();
    encoder.append(block, [other, out]);
    await encoder.commit();
    expect([...out.readSync()]).toEqual([41, 42, 43, 44]);
  });

  it("keeps no memory of the tensors in its places, nor of scratch", async () => {
    using own = Devices.open("cpu");
    const { liveBuffers, liveBytes } = own.counters;
    const [x, b, out] = [words(5, 4, own), words(1, 4, own), words(0, 4, own)];
    using arena = own.arena(1 << 12);
    const made = own.encoder({ arena, optimize: true });
    encode(made, x, b, out);
    const block = made.block([x, b, out]);
    expect(arena.used).toBe(0);
    for (const object of [x, b, out, arena]) object.dispose();
    await vi.waitFor(() => expect(own.counters).toMatchObject({ liveBuffers, liveBytes }));
    const others = [words(1, 4, own), words(2, 4, own), words(0, 4, own)] as const;
    const encoder = own.encoder();
    encoder.append(block, others);
    await encoder.commit();
    expect(values(others[2])).toEqual([5]);
  });

  it("refuses tensors that cannot take the places, before anything is recorded", () => {
    const [x, b, out] = [words(), words(), words()];
    const made = device.encoder({ optimize: true });
    mix(made, { a: x, b, out });
    const block = made.block([x, out]);
    const encoder = device.encoder();
    const append = (tensors: readonly Tensor[]) => message(() => encoder.append(block, tensors));
    const text = "encoder.append: `tensors";
    expect(append([x])).toBe(`${text}\` must be the 2 of the block, got 1`);
    expect(append([x, words(0, 5)])).toBe(`${text}[1]\` must keep dtype and bytes (u32, 16), got u32, 20`);
    expect(append([x.cast("i32"), out])).toContain(`${text}[0]\` must keep dtype and bytes (u32, 16), got i32, 16`);
    expect(append([words(0, 5).slice(1, 5), out])).toBe(`${text}[0]\` must begin 0 bytes after an aligned one, got 4`);
    expect(append([x, x])).toBe(`${text}[1]\` must not overlap tensors[0], since it is written, got overlapping views`);
    expect(append([x, b])).toContain("must not overlap other tensors that the block has, since it is written");
    const readOnly = device.wrap(new Uint8Array(new SharedArrayBuffer(16)), { readOnly: true });
    expect(append([x, new TensorObject(readOnly, "u32", [4])])).toContain(`${text}[1]\` must be writable`);
    const gone = words();
    gone.dispose();
    expect(append([gone, out])).toContain("`tensors[0]`");
    using other = Devices.open("cpu");
    expect(append([words(0, 4, other), out])).toContain(`${text}[0]\` must belong to the encoder's device`);
    const planning = device.encoder({ optimize: true });
    expect(append([planning.empty("u32", [4]), out])).toContain(`${text}[0]\` must have memory`);
    expect(encoder.toJSON().dispatches).toBe(0);
    expect(message(() => device.encoder({ barriers: "manual" }).append(block, [x, out]))).toContain(
      "`encoder` must place the barriers itself",
    );
    expect(message(() => other.encoder().append(block, [x, out]))).toContain("`block` must belong to the encoder's");
    b.dispose();
    expect(append([x, out])).toContain("tensor of the block");
  });

  it("refuses a tensor to be read that its dispatches write elsewhere", () => {
    const [x, other, sum, out] = [words(1), words(7), words(), words()];
    const made = device.encoder({ optimize: true });
    // Apart, so that they may run in either order.
    increment(made, { x, out });
    increment(made, { x: other, out: sum });
    const block = made.block([x, out]);
    const encoder = device.encoder();
    const append = (tensors: readonly Tensor[]) => message(() => encoder.append(block, tensors));
    const refused =
      "encoder.append: `tensors[0]` must not overlap other tensors that the block writes, got overlapping views";
    expect(append([sum, out])).toBe(refused);
    expect(encoder.toJSON().dispatches).toBe(0);
    encoder.append(block, [other, out]);
  });

  it("is not made where a tensor is listed twice", () => {
    const [x, out] = [words(1), words()];
    const encoder = device.encoder({ optimize: true });
    increment(encoder, { x, out });
    expect(message(() => encoder.block([x, out, x.slice(0, 4)]))).toBe(
      "encoder.block: `tensors[2]` must be listed once, got the memory of tensors[0]",
    );
  });

  it("is not made where a tensor that is written meets another one, or is bound in part only", () => {
    const both = words(0, 8);
    const of = (tensors: readonly Tensor[], x = both.slice(0, 4), out = both.slice(4, 8)) => {
      const encoder = device.encoder({ optimize: true });
      increment(encoder, { x, out });
      return message(() => encoder.block(tensors));
    };
    expect(of([both.slice(4, 8), both])).toContain("`tensors[0]` must not overlap tensors[1], since it is written");
    expect(of([both.slice(0, 2)])).toBe(
      "encoder.block: `tensors` must hold all of what a dispatch binds of them, got a part of `x`, of which a dispatch binds more",
    );
    const scratch = device.encoder({ optimize: true });
    const made = increment(scratch, { x: both });
    expect(message(() => scratch.block([made]))).toContain("`tensors[0]` must have memory");
  });
});
