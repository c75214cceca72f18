import { describe, expect, it } from "vitest";
import { HazardTracker } from "../src/hazards.ts";
import { type CommandEncoder, Device, Tensor } from "../src/index.ts";
import { caught, testDevice } from "./helpers.ts";
import { rangeOf } from "./internals.ts";
import { accumulateKernel, increment } from "./kernels/probe.ts";

const testDeviceOnce = (order: "forward" | "reverse" = "forward", validate = false) =>
  Device.open("cpu", { order, validate, threads: 2 });

describe("automatic barriers", () => {
  const device = testDevice();
  const tensors = (n: number) =>
    Array.from({ length: n }, () => device.tensor("u32", [64])) as [Tensor, Tensor, Tensor, Tensor];

  /** How many barriers a recording has. */
  function barriers(...records: ((encoder: CommandEncoder) => void)[]): number {
    const encoder = device.encoder();
    const before = device.counters;
    for (const record of records) record(encoder);
    const recording = encoder.finish();
    const after = device.counters;
    expect(after.automaticBarriers - before.automaticBarriers).toBe(recording.barriers);
    expect(after.dispatches - before.dispatches).toBe(recording.dispatches);
    return recording.barriers;
  }

  it("separate a read from the write before it", () => {
    const [a, b, c] = tensors(3);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: b }),
        (e) => increment(e, { x: b, out: c }),
      ),
    ).toBe(1);
  });

  it("separate a write from the read before it", () => {
    const [a, b, c] = tensors(3);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: b }),
        (e) => increment(e, { x: c, out: a }),
      ),
    ).toBe(1);
  });

  it("separate a write from the write before it", () => {
    const [a, b, c] = tensors(3);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: c }),
        (e) => increment(e, { x: b, out: c }),
      ),
    ).toBe(1);
  });

  it("are not needed between reads, nor between tensors apart from each other", () => {
    const [a, b, c, d] = tensors(4);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: b }),
        (e) => increment(e, { x: a, out: c }),
      ),
    ).toBe(0);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: b }),
        (e) => increment(e, { x: c, out: d }),
      ),
    ).toBe(0);
  });

  it("separate ranges that share one element, and not ranges that only touch", () => {
    const [a, b] = tensors(2);
    const halves = (overlap: number) => (e: CommandEncoder) => {
      increment(e, { x: a.slice(0, 32), out: b.slice(0, 32) });
      increment(e, { x: a.slice(32, 64), out: b.slice(32 - overlap, 64 - overlap) });
    };
    expect(barriers(halves(0))).toBe(0);
    expect(barriers(halves(1))).toBe(1);
  });

  it("are found between addresses, not between buffer objects", () => {
    const shared = new SharedArrayBuffer(1024);
    const [one, two] = [device.wrap(new Uint8Array(shared)), device.wrap(new Uint8Array(shared, 256))];
    const at = (buffer: typeof one, byteOffset: number) => new Tensor(buffer, "u32", [64], { byteOffset });
    const [a, b] = tensors(2);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: at(one, 256) }),
        (e) => increment(e, { x: at(two, 0), out: b }),
      ),
    ).toBe(1);
    expect(
      barriers(
        (e) => increment(e, { x: a, out: at(one, 0) }),
        (e) => increment(e, { x: at(two, 0), out: b }),
      ),
    ).toBe(0);
  });

  it("are forgotten after a barrier", () => {
    const [a, b, c, d] = tensors(4);
    expect(
      barriers((e) => {
        increment(e, { x: a, out: b });
        increment(e, { x: b, out: c }); // barrier
        increment(e, { x: b, out: d }); // b was written before the barrier
      }),
    ).toBe(1);
    expect(
      barriers((e) => {
        increment(e, { x: a, out: b });
        increment(e, { x: b, out: c }); // barrier
        increment(e, { x: c, out: d }); // barrier
        increment(e, { x: a, out: b });
      }),
    ).toBe(2);
  });

  it("count a readWrite buffer as both", () => {
    const [a, b, total] = tensors(3);
    const add = (e: CommandEncoder, x: Tensor) =>
      e.dispatch(accumulateKernel, { variant: "u32", buffers: { x, y: undefined, total }, params: {}, sizes: {} });
    expect(
      barriers(
        (e) => add(e, a),
        (e) => add(e, b),
      ),
    ).toBe(1);
    expect(
      barriers(
        (e) => add(e, a),
        (e) => increment(e, { x: total, out: b }),
      ),
    ).toBe(1);
    expect(
      barriers(
        (e) => increment(e, { x: total, out: b }),
        (e) => add(e, a),
      ),
    ).toBe(1);
  });

  it("are not carried over a commit", async () => {
    const [a, b, c] = tensors(3);
    const before = device.counters;
    for (const [x, out] of [
      [a, b],
      [b, c],
    ] as const) {
      const encoder = device.encoder();
      increment(encoder, { x, out });
      void encoder.commit();
    }
    expect([...(await c.read())]).toEqual(Array(64).fill(2));
    expect(device.counters.automaticBarriers).toBe(before.automaticBarriers);
  });

  it("make long chains correct, in any order of threadgroups", async () => {
    for (const order of ["forward", "reverse"] as const) {
      const device = testDeviceOnce(order);
      const ring = Array.from({ length: 5 }, () => device.tensor("u32", [1000]));
      const encoder = device.encoder();
      for (let i = 0; i < 200; i++)
        increment(encoder, { x: ring[i % 5] as Tensor, out: ring[(i + 1) % 5] as Tensor }, { groups: 100 });
      await encoder.commit();
      expect(new Set((ring[0] as Tensor).readSync() as Uint32Array)).toEqual(new Set([200]));
      device.dispose();
    }
  });

  it("that are asked for count once, and not directly after another one", () => {
    const [a, b, c] = tensors(3);
    const before = device.counters;
    const encoder = device.encoder();
    encoder.barrier();
    increment(encoder, { x: a, out: b });
    encoder.barrier();
    encoder.barrier();
    increment(encoder, { x: b, out: c });
    encoder.barrier();
    const after = device.counters;
    expect(after.manualBarriers - before.manualBarriers).toBe(2);
    expect(after.automaticBarriers - before.automaticBarriers).toBe(0);
    expect(encoder.finish().barriers).toBe(2);
  });
});

describe("manual barriers", () => {
  it("are the only ones", async () => {
    const device = testDeviceOnce();
    const [a, b, c] = [0, 1, 2].map(() => device.tensor("u32", [64])) as [Tensor, Tensor, Tensor];
    const encoder = device.encoder({ barriers: "manual" });
    increment(encoder, { x: a, out: b });
    increment(encoder, { x: b, out: c });
    expect(encoder.finish().barriers).toBe(0);
    device.dispose();
  });

  it("that are missing are reported when the device validates", () => {
    const device = testDeviceOnce("forward", true);
    const [a, b, c] = [0, 1, 2].map(() => device.tensor("u32", [64])) as [Tensor, Tensor, Tensor];
    const hex = (tensor: Tensor) => `[0x${rangeOf(tensor).begin.toString(16)}, 0x${rangeOf(tensor).end.toString(16)})`;
    const encoder = device.encoder({ barriers: "manual" });
    increment(encoder, { x: a, out: b });
    const error = caught(() => increment(encoder, { x: b, out: c }));
    expect(error.message).toBe(
      `increment: \`encoder\` must have a barrier before this dispatch (RAW), got increment/increment_u32 ${hex(b)} ` +
        `against increment/increment_u32 ${hex(b)} — call encoder.barrier()`,
    );
    expect(caught(() => increment(encoder, { x: c, out: a })).message).toContain("(WAR)");
    expect(caught(() => increment(encoder, { x: c, out: b })).message).toContain("(WAW)");
    encoder.barrier();
    increment(encoder, { x: b, out: c });
    device.dispose();
  });
});

describe("the tracker", () => {
  const range = (begin: number, end: number) => ({ begin, end });
  const touch = (reads: [number, number][], writes: [number, number][]) => ({
    label: "",
    reads: reads.map(([a, b]) => range(a, b)),
    writes: writes.map(([a, b]) => range(a, b)),
  });

  it("agrees with the definition for every pair of small ranges", () => {
    const ranges: [number, number][] = [];
    for (let begin = 0; begin < 4; begin++) for (let end = begin + 1; end <= 4; end++) ranges.push([begin, end]);
    for (const a of ranges)
      for (const b of ranges)
        for (const [first, second] of [
          ["r", "r"],
          ["r", "w"],
          ["w", "r"],
          ["w", "w"],
        ] as const) {
          const tracker = new HazardTracker();
          tracker.add(touch(first === "r" ? [a] : [], first === "w" ? [a] : []));
          const next = touch(second === "r" ? [b] : [], second === "w" ? [b] : []);
          const found = tracker.find(next)?.kind;
          const meet = a[0] < b[1] && b[0] < a[1];
          const kind = { rr: undefined, rw: "WAR", wr: "RAW", ww: "WAW" }[`${first}${second}`];
          expect(found).toBe(meet ? kind : undefined);
          expect(tracker.conflicts(next)).toBe(found !== undefined);
        }
  });
});
