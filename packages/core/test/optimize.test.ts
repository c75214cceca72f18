// Encoders that optimize: fusion, order, barriers and scratch of small recordings.
import { describe, expect, it, vi } from "vitest";
import {
  type CommandEncoder,
  type Device,
  Device as Devices,
  type OptimizeOptions,
  type Tensor,
} from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { accessesOf } from "./internals.ts";
import { count, countAndMixFusion, countByOps, countMixFusion, mix, silent } from "./kernels/chain.ts";
import { increment, launchKernel, limit } from "./kernels/probe.ts";

const device = testDevice({ poison: true });
const words = (n = 4, value = 0, on: Device = device) => on.tensor("u32", [n], Array(n).fill(value));
const fuse = { fuse: [countMixFusion], reorder: false };

/** What a recording keeps: the tensors that were returned when it was made. */
const keptOf = (returned: unknown): Tensor[] => (Array.isArray(returned) ? returned : []);
const NAMES = ["x", "b", "out", "other", "wide"] as const;
type Tensors = Record<(typeof NAMES)[number], Tensor>;

/** Records, runs once, and gives the recording and the counters that changed. */
async function run(optimize: boolean | OptimizeOptions, record: (encoder: CommandEncoder) => unknown) {
  const before = device.counters;
  const encoder = device.encoder({ optimize });
  const keep = keptOf(record(encoder));
  const recording = encoder.finish({ keep });
  await recording.replay();
  const { fusedPairs, movedNodes, automaticBarriers } = device.counters;
  expect(recording.barriers).toBe(automaticBarriers - before.automaticBarriers);
  return {
    recording,
    labels: accessesOf(recording).map(({ label }) => label.split("/")[0]),
    fused: fusedPairs - before.fusedPairs,
    moved: movedNodes - before.movedNodes,
  };
}

describe("fusion", () => {
  const chain = (encoder: CommandEncoder, x: Tensor, b: Tensor, out: Tensor) => {
    const { next } = count(encoder, { x });
    mix(encoder, { a: next, b, out });
    return next;
  };

  it("makes two calls one, with equal bits", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const { fused, labels } = await run(fuse, (e) => chain(e, x, b, out));
    expect(fused).toBe(1);
    expect(new Set(labels)).toEqual(new Set(["countMix"]));
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("leaves nothing to do for a second time, and finds the same each time", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const record = (e: CommandEncoder) => {
      chain(e, x, b, out);
      chain(e, out, b, x);
    };
    const [once, again] = [await run(fuse, record), await run(fuse, record)];
    expect([once.fused, again.fused]).toEqual([2, 2]);
    expect(again.labels).toEqual(once.labels);
    // The recording of the fused op itself has nothing that the rule names.
    expect(once.labels).not.toContain("count");
  });

  type Case = [why: string, record: (encoder: CommandEncoder, t: Tensors) => unknown];
  const refused: Case[] = [
    [
      "`next` of count is also read by increment",
      (e, { x, b, out, other }) => increment(e, { x: chain(e, x, b, out), out: other }),
    ],
    [
      "`next` of count is also read by increment",
      (e, { x, b, out, other }) => {
        const { next } = count(e, { x });
        increment(e, { x: next.slice(3, 4) as Tensor, out: other.slice(0, 1) as Tensor });
        mix(e, { a: next, b, out });
      },
    ],
    [
      "`b` is `next` too",
      (e, { x, out }) => {
        const { next } = count(e, { x });
        mix(e, { a: next, b: next, out });
      },
    ],
    [
      "`a` is not the whole output `next` in its shape",
      (e, { x, b, out }) => {
        const { next } = count(e, { x });
        mix(e, { a: next.slice(1, 3), b: b.slice(0, 2), out: out.slice(0, 2) });
      },
    ],
    [
      "`a` is not the whole output `next` in its shape",
      (e, { x, b, out }) => {
        const { next } = count(e, { x });
        mix(e, { a: next.slice(0, 2), b: b.slice(0, 2), out: out.slice(0, 2) });
      },
    ],
    ["`next` of count stays visible", (e, { x, b, out }) => [chain(e, x, b, out)]],
    ["`next` of count stays visible", (e, { x, b, out }) => [chain(e, x, b, out).slice(2, 3)]],
    [
      "`next` of count stays visible",
      (e, { x, b, out, other }) => {
        count(e, { x, next: other });
        mix(e, { a: other, b, out });
      },
    ],
    [
      "increment comes between and uses memory of count",
      (e, { x, b, out, other }) => {
        const { next } = count(e, { x });
        increment(e, { x: other, out: x });
        increment(e, { x: other, out: b });
        mix(e, { a: next, b, out });
      },
    ],
    [
      "silent/increment_u32 comes between and writes nothing",
      (e, { x, b, out, other, wide }) => {
        const { next } = count(e, { x });
        silent(e, other, wide.slice(0, 4) as Tensor);
        mix(e, { a: next, b, out });
      },
    ],
    [
      "`next` of count is also written by increment",
      (e, { x, b, out, other }) => {
        const next = e.empty("u32", [4]);
        increment(e, { x: other, out: next });
        count(e, { x, next });
        mix(e, { a: next, b, out });
      },
    ],
    [
      "`twice` of count is asked for",
      (e, { x, b, out, other }) => {
        const { next } = count(e, { x, twice: other });
        mix(e, { a: next, b, out });
      },
    ],
    [
      "`start` is 1",
      (e, { x, b, out }) => {
        const { next } = count(e, { x }, { start: 1 });
        mix(e, { a: next, b, out });
      },
    ],
    [
      "count calls other ops",
      (e, { x, b, out }) => {
        const next = countByOps(e, { x });
        mix(e, { a: next, b, out });
      },
    ],
    [
      // The op that results refuses it by its own checks.
      "countMix: `out` must be exactly `x` or not overlap it, got overlapping views",
      (e, { b, wide }) => {
        const { next } = count(e, { x: wide.slice(0, 4) });
        mix(e, { a: next, b, out: wide.slice(2, 6) });
      },
    ],
  ];
  it.each(refused)("leaves calls as they are: %s", async (why, record) => {
    const make = (): Tensors => {
      const [x, b, out, other, wide] = [words(4, 5), words(4, 100), words(), words(4, 9), words(8, 1)];
      return { x, b, out, other, wide };
    };
    const [plain, fused] = [make(), make()];
    await run(false, (e) => record(e, plain));
    const result = await run(fuse, (e) => record(e, fused));
    expect(result.fused).toBe(0);
    for (const name of NAMES) expect([...fused[name].readSync()]).toEqual([...plain[name].readSync()]);
    expect(await reasonsOf(record)).toEqual([`count + mix: ${why}`]);
  });

  /** What a device prints at `MLXTS_DEBUG` 2. */
  async function reasonsOf(record: Case[1]): Promise<string[]> {
    process.env.MLXTS_DEBUG = "2";
    const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    try {
      using loud = Devices.open("cpu");
      const tensors = Object.fromEntries(NAMES.map((name) => [name, words(name === "wide" ? 8 : 4, 1, loud)]));
      const encoder = loud.encoder({ optimize: fuse });
      const keep = keptOf(record(encoder, tensors as Tensors));
      encoder.finish({ keep });
      const lines = write.mock.calls.map(([line]) => String(line).trim());
      return lines.flatMap((line) => (line.startsWith("mlxts not fused: ") ? [line.slice(17)] : []));
    } finally {
      write.mockRestore();
      delete process.env.MLXTS_DEBUG;
    }
  }

  it("keeps an intermediate that the op that results writes", async () => {
    const [x, b, out, other] = [words(4, 5), words(4, 100), words(), words()];
    const { fused } = await run({ fuse: [countAndMixFusion] }, (e) => {
      const { next } = count(e, { x, next: other });
      mix(e, { a: next, b, out });
      increment(e, { x: next, out: next });
    });
    expect(fused).toBe(1);
    expect([...out.readSync(), ...other.readSync()]).toEqual([...Array(4).fill(107), ...Array(4).fill(7)]);
  });

  it("takes calls apart from each other where nothing between uses their memory", async () => {
    const [x, b, out, other] = [words(4, 5), words(4, 100), words(), words(4, 1)];
    const { fused } = await run(fuse, (e) => {
      const { next } = count(e, { x });
      increment(e, { x: other, out: b });
      mix(e, { a: next, b, out });
    });
    expect(fused).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(9));
  });

  it("may write in place, over the intermediate or the first input", async () => {
    const [x, b] = [words(4, 5), words(4, 100)];
    const { fused } = await run(fuse, (e) => {
      const { next } = count(e, { x });
      mix(e, { a: next, b, out: next });
      mix(e, { a: count(e, { x: next }).next, b, out: x });
    });
    expect(fused).toBe(2);
    expect([...x.readSync()]).toEqual(Array(4).fill(209));
  });
});

describe("order", () => {
  const order = (record: (encoder: CommandEncoder) => void) => run({ reuseScratch: false }, record);

  it("puts side by side what nothing orders", async () => {
    const chains = [0, 1, 2].map(() => words(4, 0));
    const { recording, moved } = await order((e) => {
      for (const x of chains) for (let i = 0; i < 4; i++) increment(e, { x, out: x });
    });
    expect([recording.dispatches, recording.barriers]).toEqual([12, 3]);
    expect(moved).toBe(6);
    for (const x of chains) expect([...x.readSync()]).toEqual(Array(4).fill(4));
  });

  it("moves nothing where that saves nothing", async () => {
    const [x, y] = [words(), words()];
    const { moved } = await order((e) => {
      increment(e, { x, out: x });
      increment(e, { x: y, out: y });
      increment(e, { x, out: x });
    });
    expect(moved).toBe(0);
  });

  it.each([
    [64, 1],
    [65, 2],
    [70, 7],
  ])("looks past fewer than 64: one behind a chain of %i is number %i", async (length, place) => {
    const [x, apart] = [words(1), words(1)];
    const { labels } = await order((e) => {
      for (let i = 0; i < length; i++) increment(e, { x, out: x });
      limit(e, { x: words(1), out: apart }, { limit: 9 });
    });
    expect(labels.indexOf("limit")).toBe(place);
  });

  it("leaves a dispatch that writes nothing where it is, and all others on their side of it", async () => {
    const [x, y, z] = [words(), words(), words()];
    const { labels, moved } = await order((e) => {
      increment(e, { x, out: x });
      increment(e, { x, out: x });
      silent(e, y, z);
      limit(e, { x: words(), out: words() }, { limit: 9 });
    });
    expect(labels).toEqual(["increment", "increment", "silent", "limit"]);
    expect(moved).toBe(0);
  });

  it("moves nothing past what conflicts with it: reads, writes, and both", async () => {
    const [a, b, c, d] = [words(4, 1), words(4, 2), words(4, 3), words(4, 4)];
    await order((e) => {
      increment(e, { x: a, out: a }); // 2
      increment(e, { x: a, out: b }); // 3
      increment(e, { x: c, out: a }); // 4, after the read
      increment(e, { x: d, out: c }); // 5, after the read
      increment(e, { x: b, out: d }); // 4
    });
    expect([a, b, c, d].map((t) => t.readSync()[0])).toEqual([4, 3, 5, 4]);
  });

  it("is left to a program that places barriers itself", async () => {
    const [x, y] = [words(), words()];
    const encoder = device.encoder({ barriers: "manual", optimize: { fuse: [countMixFusion] } });
    const first = increment(encoder, { x });
    encoder.barrier();
    increment(encoder, { x: first, out: x });
    increment(encoder, { x: y, out: y });
    const recording = encoder.finish();
    expect([recording.dispatches, recording.barriers]).toEqual([3, 1]);
    await recording.replay();
    expect([x.readSync()[0], y.readSync()[0]]).toEqual([2, 1]);
  });
});

describe("scratch", () => {
  const LINKS = 20;
  const chain = (encoder: CommandEncoder, x: Tensor, out: Tensor) => {
    let last = x;
    for (let i = 0; i < LINKS; i++) last = increment(encoder, { x: last });
    increment(encoder, { x: last, out });
  };

  it("takes the memory of scratch whose last reader has gone, with the barriers of before", async () => {
    using own = Devices.open("cpu", { poison: true });
    const [x, out] = [words(256, 7, own), words(256, 0, own)];
    const encoder = own.encoder({ optimize: true });
    chain(encoder, x, out);
    const recording = encoder.finish();
    await recording.replay();
    expect(own.counters.liveBytes).toBe(4 * 1024);
    expect(recording.barriers).toBe(LINKS);
    expect([...out.readSync()]).toEqual(Array(256).fill(7 + LINKS + 1));
    const bound = recording.rebind([[out, x]]);
    recording.dispose();
    await bound.replay();
    expect(x.readSync()[0]).toBe(7 + LINKS + 1);
    bound.dispose();
    expect(own.counters.liveBytes).toBe(2 * 1024);
  });

  it("comes from the arena, whose end is that of the recording", async () => {
    using arena = device.arena(4096);
    const [x, out] = [words(256, 7), words(256)];
    const encoder = device.encoder({ arena, optimize: true });
    expect(encoder.arena).toBeUndefined();
    chain(encoder, x, out);
    expect(arena.used).toBe(0);
    const recording = encoder.finish();
    expect(arena.used).toBe(2048);
    await recording.replay();
    arena.reset();
    expect(caught(() => recording.replay()).code).toBe("Disposed");
    const second = device.encoder({ arena: device.arena(1024), optimize: true });
    chain(second, x, out);
    expect(message(() => second.finish())).toContain("arena.alloc: `shape` must fit the arena's 1024 free bytes");
  });

  it("that is kept can be read, and all other scratch is dead", async () => {
    const x = words(4, 1);
    for (const end of ["commit", "replay"] as const) {
      const encoder = device.encoder({ optimize: true });
      const first = increment(encoder, { x });
      const second = increment(encoder, { x: first });
      const part = second.slice(1, 2);
      expect(message(() => second.readSync())).toContain("must have been computed");
      expect(message(() => second.write([1, 2, 3, 4]))).toContain("scratch of a recording");
      if (end === "commit") void encoder.commit({ keep: [part] });
      else {
        const recording = encoder.finish({ keep: [part] });
        expect(message(() => second.readSync())).toContain("call recording.replay() first");
        void recording.replay();
      }
      expect([...(await second.read())]).toEqual([3, 3, 3, 3]);
      expect([first.disposed, second.disposed]).toEqual([true, false]);
      second.dispose();
    }
  });

  it("is that of one recording", () => {
    const encoder = device.encoder({ optimize: true });
    const scratch = increment(encoder, { x: words() });
    for (const other of [device.encoder(), device.encoder({ optimize: true })])
      expect(message(() => increment(other, { x: scratch }))).toBe(
        "increment: `x` must have memory, got scratch of another recording — make it with device.tensor",
      );
    encoder.dispose();
    expect(scratch.disposed).toBe(true);
  });

  it("of an abandoned recording takes no memory", () => {
    using own = Devices.open("cpu");
    const x = words(4, 0, own);
    const encoder = own.encoder({ optimize: true });
    for (let i = 0; i < 10; i++) increment(encoder, { x });
    expect(encoder.toJSON().dispatches).toBe(10);
    encoder.dispose();
    x.dispose();
    expect(own.counters.liveBytes).toBe(0);
  });
});

describe("recordings that were optimized", () => {
  it("refuse to run without a tensor that they use, and keep what they use until they have run", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const encoder = device.encoder({ optimize: { fuse: [countMixFusion] } });
    const { next } = count(encoder, { x });
    mix(encoder, { a: next, b, out });
    const recording = encoder.finish();
    void recording.replay();
    b.dispose();
    expect(caught(() => recording.replay()).code).toBe("Disposed");
    expect([...(await out.read())]).toEqual(Array(4).fill(107));
  });

  it("die with their device", () => {
    const own = Devices.open("cpu");
    const x = words(4, 1, own);
    const encoder = own.encoder({ optimize: true });
    increment(encoder, { x: increment(encoder, { x }), out: x });
    const recording = encoder.finish();
    own.dispose();
    expect(recording.disposed).toBe(true);
    expect(caught(() => recording.replay()).code).toBe("Disposed");
    recording.dispose();
  });

  it("hold what was given at the time of the call", async () => {
    const out = words(9);
    const params = { u: 3, i: -2, f: 0.5 };
    const encoder = device.encoder({ optimize: true });
    encoder.dispatch(launchKernel, {
      variant: "u32",
      buffers: { absent: undefined, out },
      params,
      sizes: { groups: [1, 1, 1], scratch: 0 },
    });
    params.u = 4;
    await encoder.commit();
    expect(out.readSync()).toContain(3);
    expect(out.readSync()).not.toContain(4);
  });
});
