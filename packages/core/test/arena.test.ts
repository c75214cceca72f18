import { describe, expect, it } from "vitest";
import { ARENA_ALIGNMENT, arenaBytes, Device } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";

describe("arena", () => {
  const device = testDevice({ poison: true });

  it("hands out memory in order, each byte to one tensor", () => {
    using arena = device.arena(4096);
    const blocks = [1, 64, 65, 100].map((n) => arena.alloc("f32", [n]));
    blocks.forEach((block, i) => {
      expect(block.byteOffset % ARENA_ALIGNMENT).toBe(0);
      const next = blocks[i + 1];
      if (next) expect(next.byteOffset).toBeGreaterThanOrEqual(block.byteOffset + block.byteLength);
    });
    const sum = [1, 64, 65, 100].reduce((total, n) => total + arenaBytes("f32", [n]), 0);
    expect([arena.used, arena.free]).toEqual([sum, 4096 - sum]);
    expect(arena.peakBytes).toBe(sum);
    arena.reset();
    expect([arena.used, arena.peakBytes]).toEqual([0, sum]);
  });

  it("refuses what does not fit, before anything is encoded", async () => {
    using arena = device.arena(1024);
    const encoder = device.encoder({ arena });
    const x = device.tensor("u32", [256]);
    increment(encoder, { x: x.view(0, [128]) });
    expect(message(() => increment(encoder, { x }))).toBe(
      "arena.alloc: `shape` must fit the arena's 512 free bytes, got 1024 bytes — make the arena at least 1536 bytes",
    );
    expect(encoder.finish().dispatches).toBe(1);
  });

  it("grows when it was made with `grow`", () => {
    using arena = device.arena(1024, { grow: true });
    expect(arena.free).toBe(Number.POSITIVE_INFINITY);
    const first = arena.alloc("f32", [200]);
    const second = arena.alloc("f32", [10_000]);
    expect(second.buffer).not.toBe(first.buffer);
    expect(arena.byteLength).toBe(1024 + 40_192);
    arena.reset();
    expect(arena.alloc("f32", [200]).buffer).toBe(first.buffer);
    expect(arena.alloc("f32", [10_000]).buffer).toBe(second.buffer);
  });

  it("rewinds to a mark", () => {
    using arena = device.arena(4096);
    arena.alloc("f32", [64]);
    const mark = arena.mark();
    const a = arena.alloc("f32", [64]);
    arena.rewind(mark);
    expect(arena.alloc("f32", [64]).byteOffset).toBe(a.byteOffset);
  });

  it("frees kept tensors with a rewind to a place before them, but not those of recordings", async () => {
    using own = Device.open("cpu", { poison: false });
    using arena = own.arena(4096);
    const x = own.tensor("u32", [64]);
    const keep = async () => {
      const encoder = own.encoder({ arena, optimize: true });
      const kept = increment(encoder, { x });
      await encoder.commit({ keep: [kept] });
      return kept;
    };
    const first = arena.mark();
    const a = await keep();
    arena.alloc("f32", [1]);
    const second = arena.mark();
    expect(second).not.toBe(first);
    const b = await keep();
    const encoder = own.encoder({ arena, optimize: true });
    const recorded = increment(encoder, { x });
    const recording = encoder.finish({ keep: [recorded] });
    const disposed = () => [a, b, recorded].map((tensor) => tensor.disposed);
    const { liveBytes } = own.counters;
    arena.rewind(second);
    expect(disposed()).toEqual([false, true, false]);
    expect(own.counters.liveBytes).toBe(liveBytes - 256);
    arena.rewind(first);
    expect(disposed()).toEqual([true, true, false]);
    await recording.replay();
    expect(recorded.readSync()[0]).toBe(1);
    arena.reset();
    expect(disposed()).toEqual([true, true, true]);
  });

  it("rewinds to its own marks only, and not to marks past which it was rewound", () => {
    using arena = device.arena(4096);
    using other = device.arena(4096);
    const refused =
      "arena.rewind: `mark` must come from arena.mark() and lie before what is handed out, got a mark of another arena, or from before a reset or an earlier rewind";
    const first = arena.mark();
    arena.alloc("f32", [64]);
    const second = arena.mark();
    expect(arena.mark()).toBe(second);
    expect(() => Object.assign(second, { used: 9999 })).toThrow(TypeError);
    for (const mark of [{ block: 7, used: 0 }, { block: 0, used: 0 }, { ...second }, other.mark()])
      expect(message(() => arena.rewind(mark))).toBe(refused);
    expect(message(() => arena.rewind(undefined as never))).toBe(
      "arena.rewind: `mark` must be an ArenaMark, got undefined",
    );
    arena.rewind(second);
    arena.rewind(first);
    expect(message(() => arena.rewind(second))).toBe(refused);
    arena.alloc("f32", [64]);
    const third = arena.mark();
    arena.reset();
    expect(message(() => arena.rewind(third))).toBe(refused);
    expect(message(() => arena.rewind(first))).toBe(refused);
    expect(arena.used).toBe(0);
  });

  it("refuses options that nobody knows", () => {
    expect(message(() => device.arena(256, { grows: true } as never))).toBe(
      "device.arena: `grows` must be one of grow, got an unknown option",
    );
    expect(message(() => device.arena(256, { grow: 1 } as never))).toBe(
      "device.arena: `grow` must be a boolean, got 1",
    );
  });

  it("disposes its tensors at a reset and at its end", () => {
    const arena = device.arena(1024);
    const old = arena.alloc("f32", [4]);
    const view = old.view(1, [2]);
    arena.reset();
    const fresh = arena.alloc("f32", [4]);
    expect([old.disposed, view.disposed, fresh.disposed]).toEqual([true, true, false]);
    expect(caught(() => old.readSync()).message).toBe("the tensor has been disposed");
    const encoder = device.encoder();
    expect(caught(() => increment(encoder, { x: old.cast("u32") })).message).toBe("the tensor `x` has been disposed");
    arena.dispose();
    arena.dispose();
    expect([arena.disposed, fresh.disposed]).toEqual([true, true]);
    expect(caught(() => arena.alloc("f32", [1])).message).toBe("the arena has been disposed");
  });

  it("is poisoned at first and at every reset, in the order of submission", async () => {
    using arena = device.arena(1024);
    const x = device.tensor("u32", [64]);
    const dirty = arena.alloc("u32", [64]);
    expect([...(await dirty.read())]).toEqual(Array(64).fill(0xffffffff));
    const encoder = device.encoder();
    increment(encoder, { x, out: dirty }, { microseconds: 5000 });
    const kept = device.tensor("u32", [64]);
    increment(encoder, { x: dirty, out: kept });
    void encoder.commit();
    arena.reset();
    const again = arena.alloc("u32", [64]);
    expect([...(await again.read())]).toEqual(Array(64).fill(0xffffffff));
    expect([...(await kept.read())]).toEqual(Array(64).fill(2));
  });

  it("can be written and read at once although poison fills it, before and after a reset", () => {
    using arena = device.arena(1 << 20);
    for (let i = 0; i < 50; i++) {
      const x = arena.alloc("u32", [4]);
      expect([...x.readSync()]).toEqual(Array(4).fill(0xffffffff));
      const y = arena.alloc("u32", [4]);
      y.write([1, 2, 3, 4]);
      expect([...y.readSync()]).toEqual([1, 2, 3, 4]);
      arena.reset();
    }
  });

  it("refuses to be written where work of the program is in flight", async () => {
    using arena = device.arena(1024);
    const x = arena.alloc("u32", [64]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x }, { microseconds: 5000 });
    const submission = encoder.commit();
    expect(caught(() => x.write(Array(64).fill(1))).message).toContain("must not be used by work in flight");
    await submission;
  });

  it("is not poisoned by default", async () => {
    using plain = Device.open("cpu", { poison: false });
    using arena = plain.arena(256);
    expect([...(await arena.alloc("u32", [4]).read())]).toEqual([0, 0, 0, 0]);
    expect(plain.counters.submissions).toBe(0);
  });
});
