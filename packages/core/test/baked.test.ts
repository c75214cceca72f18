// Records: calls of ops that are checked once.
import { describe, expect, it } from "vitest";
import { type Device, Device as Devices, defineOp, type OpRecord, type Tensor } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { accessesOf } from "./internals.ts";
import { count, countMix, countMixFusion, mix } from "./kernels/chain.ts";
import { increment, launchKernel, limit } from "./kernels/probe.ts";

const device = testDevice({ poison: true });
const words = (n = 4, value = 0, on: Device = device) => on.tensor("u32", [n], Array(n).fill(value));
const form = (n: number) => ({ dtype: "u32" as const, shape: [n] });

/** An op whose dispatch has numbers, threadgroups and an absent buffer. */
const launch = defineOp({
  name: "launch",
  summary: "what each threadgroup got",
  inputs: {},
  outputs: { out: { dtype: ["u32"], shape: "N" } },
  params: { groups: { kind: "number", integer: true, min: 1 } },
  encode({ encoder, op, outputs: { out }, options: { groups } }) {
    encoder.dispatch(launchKernel, {
      op,
      variant: "u32",
      buffers: { absent: undefined, out },
      params: { u: 7, i: -2, f: 0.5 },
      sizes: { groups: [groups, 1, 1], scratch: 32 },
    });
  },
});

type Call = [
  name: string,
  record: OpRecord,
  tensors: () => Record<string, Tensor>,
  plain: (t: Record<string, Tensor>) => unknown,
];

describe("a record", () => {
  let encoder = device.encoder();
  const calls: Call[] = [
    [
      "of one dispatch",
      device.bake(increment, { x: form(4) }, { groups: 2 }),
      () => ({ x: words(4, 5), out: words() }),
      (t) => increment(encoder, t as never, { groups: 2 }),
    ],
    [
      "in place",
      device.bake(increment, { x: form(4) }, {}),
      () => {
        const x = words(4, 5);
        return { x, out: x };
      },
      (t) => increment(encoder, t as never),
    ],
    [
      "in place, of another view",
      device.bake(increment, { x: form(4) }, {}),
      () => {
        const x = words(4, 5);
        return { x, out: x.reshape([4]) };
      },
      (t) => increment(encoder, t as never),
    ],
    [
      "of tensors that touch",
      device.bake(mix, { a: form(4), b: form(4) }),
      () => {
        const all = words(12, 5);
        return { a: all.slice(0, 4), out: all.slice(4, 8), b: all.slice(8, 12) };
      },
      (t) => mix(encoder, t as never),
    ],
    [
      "of parts of its tensors",
      device.bake(mix, { a: form(4), b: form(4) }),
      () => ({ a: words(4, 5), b: words(4, 6), out: words(8).slice(2, 6) }),
      (t) => mix(encoder, t as never),
    ],
    [
      "with an optional output",
      device.bake(count, { x: form(4), twice: form(4) }),
      () => ({ x: words(4, 5), next: words(), twice: words() }),
      (t) => count(encoder, t as never),
    ],
    [
      "that may fail on its data",
      device.bake(limit, { x: form(4) }, { limit: 9 }),
      () => ({ x: words(4, 5), out: words() }),
      (t) => limit(encoder, t as never, { limit: 9 }),
    ],
    [
      "with parameters and threadgroups",
      device.bake(launch, { out: form(27) }, { groups: 3 }),
      () => ({ out: words(27) }),
      (t) => launch(encoder, t as never, { groups: 3 }),
    ],
  ];

  it.each(calls)("gives the dispatches of the call: %s", async (_, record, make, plain) => {
    const tensors = make();
    const outcome = async (encode: () => void) => {
      for (const tensor of Object.values(tensors)) tensor.write(Array(tensor.size).fill(5));
      const before = device.counters;
      encoder = device.encoder();
      encode();
      const { dispatches, automaticBarriers } = device.counters;
      const recording = encoder.finish();
      await recording.replay();
      return {
        accesses: accessesOf(recording).map(({ label, reads, writes }) => ({ label, reads, writes })),
        barriers: recording.barriers,
        counted: [dispatches - before.dispatches, automaticBarriers - before.automaticBarriers],
        results: Object.values(tensors).map((tensor) => [...(tensor.readSync() as Uint32Array)]),
      };
    };
    const called = await outcome(() => plain(tensors));
    const baked = await outcome(() => record.encode(encoder, tensors));
    expect(baked).toEqual(called);
    expect(baked.counted[0]).toBe(JSON.parse(JSON.stringify(record)).dispatches);
    expect(Object.keys(tensors).sort()).toEqual([...record.names].sort());
  });

  it("takes its scratch from the encoder", async () => {
    const record = device.bake(countMix, { x: form(4), b: form(4) });
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const own = device.encoder();
    record.encode(own, { x, b, out });
    await own.commit();
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("is a call of the op to an encoder that optimizes", async () => {
    const [first, second] = [device.bake(count, { x: form(4) }), device.bake(mix, { a: form(4), b: form(4) })];
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const { fusedPairs } = device.counters;
    const own = device.encoder({ optimize: { fuse: [countMixFusion] } });
    const next = own.empty("u32", [4]);
    first.encode(own, { x, next });
    second.encode(own, { a: next, b, out });
    await own.commit();
    expect(device.counters.fusedPairs - fusedPairs).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("is refused as the call would be", () => {
    expect(message(() => device.bake(increment, { x: form(3) }, { groups: 2 }))).toBe(
      message(() => increment(device.encoder(), { x: words(3) as never }, { groups: 2 })),
    );
    expect(message(() => device.bake(increment, { x: { dtype: "f32", shape: [4] } }))).toBe(
      message(() => increment(device.encoder(), { x: device.tensor("f32", [4]) as never })),
    );
    expect(message(() => device.bake(mix, { a: form(4) }))).toBe(
      message(() => mix(device.encoder(), { a: words() } as never)),
    );
    expect(message(() => device.bake(1 as never, {}))).toBe("bake: `op` must be an op, got 1");
  });

  it("checks what can still be wrong, and records nothing then", () => {
    const record = device.bake(mix, { a: form(4), b: form(4) });
    const [a, b, out] = [words(), words(), words()];
    const own = device.encoder();
    const refusal = (tensors: object, on = own) => message(() => record.encode(on, tensors as never));
    expect(refusal({ a, b })).toBe("mix: `out` must be a Tensor, got undefined");
    expect(refusal({ a, b: device.tensor("f32", [4]), out })).toBe("mix: `b` must have dtype u32, got f32");
    expect(refusal({ a: words(5), b, out })).toBe("mix: `a` must have 16 bytes, got 20");
    expect(refusal({ a, b, out: b })).toBe("mix: `out` must not overlap `b`, got overlapping views");
    const wide = words(6);
    expect(refusal({ a: wide.slice(0, 4), b, out: wide.slice(2, 6) })).toContain(
      "`out` must be exactly `a` or not overlap it",
    );
    using other = Devices.open("cpu");
    expect(refusal({ a: words(4, 0, other), b, out })).toBe(
      "mix: `a` must belong to the encoder's device, got a tensor of another device",
    );
    expect(refusal({ a, b, out }, other.encoder())).toBe(
      "mix: `encoder` must belong to the record's device, got an encoder of another device",
    );
    b.dispose();
    expect(caught(() => record.encode(own, { a, b, out })).code).toBe("Disposed");
    expect(own.toJSON().dispatches).toBe(0);
  });

  it("ends with its device", () => {
    const own = Devices.open("cpu");
    const record = own.bake(increment, { x: form(4) });
    const x = words(4, 0, own);
    const late = own.encoder();
    own.dispose();
    expect(caught(() => record.encode(late, { x, out: x })).code).toBe("Disposed");
  });
});
