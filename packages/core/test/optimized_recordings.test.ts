// Recordings that were optimized: what they let a program rebind, and how their recording ends or fails to end.
import { describe, expect, it } from "vitest";
import { type Device, Device as Devices, defineFusion, defineOp, type Tensor } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { count, countAndMixFusion, countMix, countMixFusion, mix, mixTwoFusion } from "./kernels/chain.ts";
import { increment, incrementKernel } from "./kernels/probe.ts";

const device = testDevice({ poison: true });
const words = (n = 4, value = 0, on: Device = device) => on.tensor("u32", [n], Array(n).fill(value));
const fuse = { fuse: [countMixFusion], reorder: false };

describe("recordings that were optimized", () => {
  it("refuse a rebinding that makes a new overlap, also with what fusion has removed, and take all others", async () => {
    const [one, b, c, e] = [words(4, 1), words(), words(), words()];
    const [d, f] = [words(4, 50), words(4, 70)];
    const encoder = device.encoder({ optimize: true });
    increment(encoder, { x: one, out: b });
    increment(encoder, { x: b, out: c });
    increment(encoder, { x: d, out: e });
    const recording = encoder.finish();
    const refusal =
      "recording.rebind: `pairs` must make no new overlap in a recording that was optimized, " +
      "got `x` of increment over `out` of increment — record anew with the new tensors, or with optimize: false";
    expect(message(() => recording.rebind([[d, c]]))).toBe(refusal);
    expect(message(() => recording.rebind([[d, f]]).rebind([[f, c]]))).toMatch(/ of increment over .* of increment — /);
    await recording.rebind([[d, f]]).replay();
    expect([e, c].map((t) => t.readSync()[0])).toEqual([71, 3]);

    const [x, y, z, q] = [words(4, 5), words(4, 100), words(), words(4, 9)];
    const fusing = device.encoder({ optimize: fuse });
    const { next } = count(fusing, { x });
    increment(fusing, { x: y, out: q });
    mix(fusing, { a: next, b: y, out: z });
    const fused = fusing.finish();
    expect(message(() => fused.rebind([[q, x]]))).toContain("must make no new overlap");
  });

  it("are not ended twice by what `keep` runs", async () => {
    for (const end of ["finish", "commit"] as const) {
      const x = words();
      const encoder = device.encoder({ optimize: true });
      increment(encoder, { x, out: x });
      const keep: Tensor[] = [];
      keep[Symbol.iterator] = () => {
        encoder.finish();
        return [][Symbol.iterator]();
      };
      expect(message(() => encoder[end]({ keep }))).toContain(`encoder.${end}: \`encoder\` must be recording`);
      expect(encoder.toJSON()).toMatchObject({ state: "finished", dispatches: 1 });
    }
  });

  it("are not ended by an op that fusion calls", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const errors: string[] = [];
    const any = { dtype: ["u32"], shape: "N" } as const;
    const ending = defineOp({
      name: "ending",
      summary: "ends its encoder",
      inputs: { x: any, b: any },
      outputs: { out: any },
      params: {},
      encode: ({ encoder, inputs, outputs }) => {
        encoder.dispose();
        for (const end of ["finish", "commit"] as const) errors.push(message(() => encoder[end]()));
        countMix(encoder, { ...inputs, ...outputs });
      },
    });
    const rule = defineFusion({
      calls: { first: "count", second: "mix" },
      links: { "second.a": "first.next" },
      into: ending,
      tensors: { x: "first.x", b: "second.b", out: "second.out" },
      when: { "first.start": [0] },
    });
    const encoder = device.encoder({ optimize: { fuse: [rule] } });
    mix(encoder, { a: count(encoder, { x }).next, b, out });
    await encoder.commit();
    expect(errors).toEqual(
      ["finish", "commit"].map(
        (end) =>
          `encoder.${end}: \`encoder\` must be recording, got an ending encoder — make a new one with device.encoder()`,
      ),
    );
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("change nothing when a tensor is gone, and leave nothing when their end fails", () => {
    using own = Devices.open("cpu");
    const [x, gone] = [words(4, 1, own), words(4, 1, own)];
    const encoder = own.encoder({ optimize: true });
    const kept = increment(encoder, { x });
    increment(encoder, { x: gone, out: x });
    gone.dispose();
    const before = own.counters;
    for (const end of ["finish", "commit"] as const)
      expect(caught(() => encoder[end]({ keep: [kept] })).code).toBe("Disposed");
    expect(own.counters).toEqual(before);
    expect(encoder.toJSON()).toMatchObject({ state: "recording", dispatches: 2 });
    expect(kept.disposed).toBe(false);
    encoder.dispose();
    x.dispose();
    expect(own.counters.liveBytes).toBe(0);
  });

  it("dispose their encoder when their end fails", () => {
    using own = Devices.open("cpu", { poison: false });
    const arena = own.arena(256);
    const x = words(256, 1, own);
    const encoder = own.encoder({ arena, optimize: true });
    const kept = increment(encoder, { x });
    increment(encoder, { x: increment(encoder, { x: kept }), out: x });
    expect(message(() => encoder.finish({ keep: [kept] }))).toContain("must fit the arena's");
    expect([encoder.toJSON().state, kept.disposed]).toEqual(["disposed", true]);
    x.dispose();
    arena.dispose();
    expect(own.counters.liveBytes).toBe(0);
  });

  it("refuse to replace what optimizing has left out or placed, and what none of their dispatches binds", async () => {
    const [x, b, out, seen] = [words(4, 5), words(4, 100), words(), words()];
    const encoder = device.encoder({ optimize: fuse });
    const { next } = count(encoder, { x, next: words() });
    mix(encoder, { a: next, b, out: next });
    const lost = increment(encoder, { x: next });
    const kept = increment(encoder, { x: lost });
    increment(encoder, { x: kept, out });
    const recording = encoder.finish({ keep: [kept] });
    const rule = "recording.rebind: `pairs` must name tensors that the recording's dispatches bind, got ";
    expect(message(() => recording.rebind([[lost, words()]]))).toBe(
      `${rule}\`out\` of increment, which optimizing has left out or placed as scratch`,
    );
    expect(message(() => recording.rebind([[words(), seen]]))).toBe(`${rule}u32 [4] at byte 0, which none binds`);
    // `mix` binds its words one by one.
    expect(message(() => recording.rebind([[b, words()]]))).toContain(rule);
    expect(message(() => recording.rebind([[next, words()]]))).toContain(
      "`pairs` must part no outputs in a recording that was optimized, got `out` of count apart from `out` of mix",
    );
    const bound = recording.rebind([[kept, seen]]);
    await bound.replay();
    expect([seen, out].map((t) => t.readSync()[0])).toEqual([109, 110]);
    expect(message(() => bound.rebind([[kept, words()]]))).toContain(rule);

    // The op that results of two calls of `mix` binds all of `b`, of which they bound the words.
    const joining = device.encoder({ optimize: { fuse: [mixTwoFusion] } });
    increment(joining, { x: b.slice(0, 1), out: seen.slice(0, 1) });
    for (const each of [out, words()]) mix(joining, { a: b, b: x, out: each });
    const joined = joining.finish();
    expect(message(() => joined.rebind([[b.slice(0, 1), words(1)]]))).toContain(
      "`x` of increment, of which optimizing has changed ",
    );

    const plain = device.encoder();
    increment(plain, { x, out });
    expect(message(() => plain.finish().rebind([[b, words()]]))).toContain(rule);
  });

  it("free the memory that a rebinding took before it was refused", () => {
    using own = Devices.open("cpu", { poison: false });
    using other = Devices.open("cpu");
    const [x, y] = [words(4, 1, own), words(4, 1, own)];
    const encoder = own.encoder();
    increment(encoder, { x, out: x });
    increment(encoder, { x: y, out: y });
    const recording = encoder.finish();
    expect(message(() => recording.rebind([[y, words(4, 0, other)]]))).toContain("a tensor of another device");
    for (const each of [recording, x, y]) each.dispose();
    expect(own.counters.liveBytes).toBe(0);
  });

  it("take no dispatch of a record, and no scratch, once they have ended", () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const record = device.bake(increment, { x: { dtype: "u32", shape: [4] } });
    for (const optimize of [false, true]) {
      const encoder = device.encoder({ optimize });
      increment(encoder, { x, out });
      const recording = encoder.finish();
      expect(message(() => record.encode(encoder, { x: b, out }))).toContain(
        "encoder.dispatch: `encoder` must be recording, got a finished encoder",
      );
      expect(recording.dispatches).toBe(1);
      if (optimize)
        expect(message(() => encoder.empty("u32", [4]))).toContain("encoder.empty: `encoder` must be recording");
    }
  });

  it("use scratch that the program has disposed, as others do", async () => {
    for (const optimize of [false, fuse, { fuse: [countAndMixFusion] }]) {
      const [x, b, out] = [words(4, 5), words(4, 100), words()];
      const encoder = device.encoder({ optimize });
      const { next } = count(encoder, { x });
      mix(encoder, { a: next, b, out });
      next.dispose();
      await encoder.commit();
      expect([...out.readSync()]).toEqual(Array(4).fill(107));
    }
  });

  it("see a call of an op as it was, whatever the op does to its arguments", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const any = { dtype: ["u32"], shape: "N" } as const;
    const changing = defineOp({
      name: "count",
      summary: "x + 1",
      inputs: { x: any },
      outputs: { next: any, twice: { ...any, optional: true } },
      params: { start: { kind: "choice", values: [0, 1], default: 0 } },
      encode: ({ encoder, tensors, inputs, outputs }) => {
        const buffers = { x: inputs.x, out: outputs.next };
        const params = { perGroup: 4, microseconds: 0 };
        encoder.dispatch(incrementKernel, { op: "count", variant: "u32", buffers, params, sizes: { groups: 1 } });
        Object.assign(tensors, { x: b });
        Object.assign(inputs, { x: b });
      },
    });
    const encoder = device.encoder({ optimize: { fuse: [countMixFusion] } });
    mix(encoder, { a: changing(encoder, { x }).next, b, out });
    const { fusedPairs } = device.counters;
    await encoder.commit();
    expect(device.counters.fusedPairs - fusedPairs).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("leave nothing when what is kept is disposed by an op that fusion calls", () => {
    using own = Devices.open("cpu", { poison: false });
    using arena = own.arena(4096);
    const { used } = arena;
    const [x, b, out] = [words(4, 5, own), words(4, 100, own), words(4, 0, own)];
    const any = { dtype: ["u32"], shape: "N" } as const;
    const made: Tensor[] = [];
    const disposing = defineOp({
      name: "disposing",
      summary: "disposes what the program keeps",
      inputs: { x: any, b: any },
      outputs: { out: any },
      params: {},
      encode: ({ encoder, inputs, outputs }) => {
        made[0]?.dispose();
        countMix(encoder, { ...inputs, ...outputs });
      },
    });
    const rule = defineFusion({
      calls: { first: "count", second: "mix" },
      links: { "second.a": "first.next" },
      into: disposing,
      tensors: { x: "first.x", b: "second.b", out: "second.out" },
      when: { "first.start": [0] },
    });
    const encoder = own.encoder({ arena, optimize: { fuse: [rule] } });
    made.push(increment(encoder, { x: increment(encoder, { x: b }) }));
    mix(encoder, { a: count(encoder, { x }).next, b, out });
    const { liveBytes } = own.counters;
    expect(caught(() => encoder.finish({ keep: made })).code).toBe("Disposed");
    expect([encoder.toJSON().state, own.counters.liveBytes, arena.used]).toEqual(["disposed", liveBytes, used]);
  });
});

it("scratch is no larger than a buffer can be: ranges are exact numbers", async () => {
  const encoder = device.encoder({ optimize: true });
  const rows = 2 ** 16;
  const most = Math.floor(device.limits.maxBufferBytes / rows);
  const refused = /^encoder\.empty: cannot allocate \d+ bytes of scratch on \w+$/;
  for (const dims of [
    [rows, most + 1],
    [2 ** 26, 2 ** 26],
  ])
    expect(() => encoder.empty("u8", dims)).toThrow(expect.objectContaining({ code: "BufferAllocation" }));
  // What is not used takes no memory, however much it is together.
  expect(() => {
    for (let i = 0; i < 2 ** 19; i++) encoder.empty("u8", [rows, most]);
  }).toThrow(refused);
  const x = words(4, 1);
  const y = words();
  increment(encoder, { x, out: y });
  await encoder.commit();
  expect(y.readSync()[0]).toBe(2);
});

it("scratch that two tensors need at a time may have more bytes than a dimension counts", async () => {
  // Nothing touches most of this memory.
  using own = Devices.open("cpu", { poison: false });
  const encoder = own.encoder({ optimize: true });
  const x = own.tensor("u32", [4], [1, 2, 3, 4]);
  const [y, z] = [own.tensor("u32", [4]), own.tensor("u32", [4])];
  const [a, b] = [0, 1].map(() => encoder.empty("u32", [2 ** 28 + 64]).view(2 ** 28, [4]));
  increment(encoder, { x, out: a });
  increment(encoder, { x, out: b });
  increment(encoder, { x: a as Tensor<"u32">, out: y });
  increment(encoder, { x: b as Tensor<"u32">, out: z });
  await encoder.commit();
  expect([...y.readSync(), ...z.readSync()]).toEqual([3, 4, 5, 6, 3, 4, 5, 6]);
});
