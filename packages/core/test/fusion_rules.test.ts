// Rules of fusion: which calls of a recording become one, and why others stay as they are.
import { describe, expect, it, vi } from "vitest";
import {
  type CommandEncoder,
  Device as Devices,
  defineFusion,
  defineOp,
  type Fusion,
  type FusionRule,
  type Tensor,
} from "../src/index.ts";
import { testDevice } from "./helpers.ts";
import {
  count,
  countBesideMixFusion,
  countBothFusion,
  countBothMixFusion,
  countMix,
  countMixFusion,
  keepTwice,
  mix,
  mixTwoFusion,
  reshapedFusion,
  silent,
} from "./kernels/chain.ts";
import { accumulateKernel, increment, incrementKernel } from "./kernels/probe.ts";

const device = testDevice({ poison: true });
const words = (n = 4, value = 0, on = device) => on.tensor("u32", [n], Array(n).fill(value));

/** Records by rules, runs once, and gives how many calls became part of another. What `record` returns is kept. */
async function fusedBy(rules: readonly Fusion[], record: (encoder: CommandEncoder) => unknown): Promise<number> {
  const { fusedPairs } = device.counters;
  const encoder = device.encoder({ optimize: { fuse: rules, reorder: false } });
  const keep = record(encoder);
  await encoder.commit({ keep: Array.isArray(keep) ? keep : [] });
  return device.counters.fusedPairs - fusedPairs;
}

/** count + mix, as `countMix` does it. */
const CHAIN = {
  calls: { first: "count", second: "mix" },
  links: { "second.a": "first.next" },
  into: countMix,
  tensors: { x: "first.x", b: "second.b", out: "second.out" },
} satisfies FusionRule;

const ANY = { dtype: ["u32"], shape: "N" } as const;

type Encode = (encoder: CommandEncoder, x: Tensor, next: Tensor, op: string) => void;

/** An op of a name that rules look for, with tensors as `count` has them. */
const impostor = (encode: Encode, { params = {}, inputs = {} } = {}) =>
  defineOp({
    name: "count",
    summary: "x + 1",
    inputs: { x: ANY, ...(inputs as { offset: { dtype: ["u32"]; shape: "N"; optional: true } }) },
    outputs: { next: ANY },
    params,
    encode: ({ encoder, op, inputs: { x }, outputs: { next } }) => encode(encoder, x, next, op),
  });

const add = (words: number): Encode => {
  const params = { perGroup: words, microseconds: 0 };
  return (encoder, x, next, op) =>
    encoder.dispatch(incrementKernel, {
      op,
      variant: "u32",
      buffers: { x, out: next.slice(0, words) },
      params,
      sizes: { groups: 1 },
    });
};

describe("a rule leaves calls as they are", () => {
  type Tensors = Record<"x" | "b" | "out" | "other", Tensor>;
  type Case = [why: string, rule: Fusion, record: (encoder: CommandEncoder, t: Tensors) => unknown];
  const start = { params: { start: { kind: "choice", values: [0, 1], default: 0 } } };
  const named = { ...CHAIN, options: { start: "first.start" } };
  const cases: Case[] = [
    [
      "`a` is not the whole output `next` in its shape",
      countMixFusion,
      (e, { x, b, out }) => mix(e, { a: count(e, { x: x.reshape([2, 2]) }).next.reshape([4]), b, out }),
    ],
    [
      "`a` is not the whole output `next` in its shape",
      reshapedFusion,
      (e, { x, b, out }) => mix(e, { a: count(e, { x }).next.slice(0, 2), b: b.slice(0, 2), out: out.slice(0, 2) }),
    ],
    [
      "`start` of two and `start` of one differ",
      countBothFusion,
      (e, { x, b, out }) => mix(e, { a: count(e, { x }).next, b: count(e, { x: b }, { start: 1 }).next, out }),
    ],
    [
      "`x` of one and `x` of other differ",
      countBothMixFusion,
      (e, { x, b, out }) => mix(e, { a: count(e, { x }).next, b: count(e, { x: b }).next, out }),
    ],
    [
      "`x` is written between one and other",
      countBothMixFusion,
      (e, { x, out, other }) => {
        const one = count(e, { x }).next;
        increment(e, { x: other, out: x });
        mix(e, { a: one, b: count(e, { x }).next, out });
      },
    ],
    [
      "second uses the output of count",
      countBesideMixFusion,
      (e, { x, out, other }) => {
        count(e, { x, next: other });
        mix(e, { a: other, b: x, out });
      },
    ],
    [
      "increment comes between and uses memory of count",
      countBesideMixFusion,
      (e, { x, b, out, other }) => {
        count(e, { x, next: other });
        increment(e, { x: b, out: other });
        increment(e, { x: b, out });
        mix(e, { a: out, b: x, out });
      },
    ],
    [
      "`out` of mix is asked for",
      defineFusion({ ...CHAIN, tensors: { ...CHAIN.tensors, out: "second.a" } }),
      (e, { x, b, out }) => mix(e, { a: count(e, { x }).next, b, out }),
    ],
    [
      "count has a dispatch that writes nothing",
      defineFusion(CHAIN),
      (e, { x, b, out }) => {
        const op = impostor((encoder, from, next, name) => {
          add(4)(encoder, from, next, name);
          silent(encoder, from, from);
        });
        mix(e, { a: op(e, { x }), b, out });
      },
    ],
    [
      "`offset` of count is given",
      defineFusion(CHAIN),
      (e, { x, b, out, other }) => {
        const op = impostor(add(4), { inputs: { offset: { ...ANY, optional: true } } });
        mix(e, { a: op(e, { x, offset: other } as never), b, out });
      },
    ],
    [
      "`next` of count is written only in part",
      defineFusion(CHAIN),
      (e, { x, b, out }) => mix(e, { a: impostor(add(3))(e, { x }), b, out }),
    ],
    [
      "`next` of count is written only in part",
      defineFusion(CHAIN),
      (e, { x, b, out }) => {
        // It adds to what its output held before.
        const op = impostor((encoder, from, next, name) => {
          for (let i = 0; i < 4; i++)
            encoder.dispatch(accumulateKernel, {
              op: name,
              variant: "u32",
              buffers: { x: from.slice(i, i + 1), y: undefined, total: next.slice(i, i + 1) },
              params: {},
              sizes: {},
            });
        });
        mix(e, { a: op(e, { x }), b, out });
      },
    ],
    [
      "this count has no `start`",
      defineFusion(named),
      (e, { x, b, out }) => mix(e, { a: impostor(add(4))(e, { x }), b, out }),
    ],
    [
      "countMix takes as many dispatches: 3",
      defineFusion(CHAIN),
      (e, { x, b }) => mix(e, { a: count(e, { x: x.slice(0, 1) }).next, b: b.slice(0, 1) }),
    ],
  ];
  it.each(cases)("because %s", async (why, rule, record) => {
    expect(await reasonsOf(rule, record)).toEqual([`${rule.calls.map(([, op]) => op).join(" + ")}: ${why}`]);
  });

  it("takes an op of the name that has all names that the rule has", async () => {
    const op = impostor(add(4), start);
    const [x, b] = [words(4, 5), words(4, 100)];
    expect(await fusedBy([defineFusion(named)], (e) => mix(e, { a: op(e, { x }), b }))).toBe(1);
  });

  /** What an encoder of a device at `MLXTS_DEBUG` 2 prints. */
  async function reasonsOf(rule: Fusion, record: Case[2]): Promise<string[]> {
    const lines: string[] = [];
    const write = vi.spyOn(process.stderr, "write").mockImplementation((line) => {
      lines.push(String(line).trim());
      return true;
    });
    try {
      process.env.MLXTS_DEBUG = "2";
      using loud = Devices.open("cpu");
      const [x, b, out, other] = [words(4, 5, loud), words(4, 100, loud), words(4, 0, loud), words(4, 9, loud)];
      const encoder = loud.encoder({ optimize: { fuse: [rule] } });
      record(encoder, { x, b, out, other });
      encoder.finish();
    } finally {
      write.mockRestore();
      delete process.env.MLXTS_DEBUG;
    }
    return lines.flatMap((line) => (line.startsWith("mlxts not fused: ") ? [line.slice(17)] : []));
  }
});

describe("rules of several calls", () => {
  it("join calls of which some stand between the others", async () => {
    const chain = defineOp({
      name: "countFourMix",
      summary: "x + 4 + b",
      inputs: { x: ANY, b: ANY },
      outputs: { out: ANY },
      params: {},
      encode: ({ encoder, inputs: { x, b }, outputs: { out } }) => {
        countMix(encoder, { x: increment(encoder, { x: increment(encoder, { x }) }), b, out });
      },
    });
    const rule = defineFusion({
      calls: { start: "increment", zero: "increment", first: "count", second: "mix" },
      links: { "zero.x": "start.out", "first.x": "zero.out", "second.a": "first.next" },
      into: chain,
      tensors: { x: "start.x", b: "second.b", out: "second.out" },
    });
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const record = (e: CommandEncoder) =>
      mix(e, { a: count(e, { x: increment(e, { x: increment(e, { x }) }) }).next, b, out });
    expect(await fusedBy([rule], record)).toBe(3);
    expect([...out.readSync()]).toEqual(Array(4).fill(109));
  });

  it("do not take an op that results for one that it calls", async () => {
    const calling = defineOp({
      name: "calling",
      summary: "x + 2 + b",
      inputs: { x: ANY, b: ANY },
      outputs: { out: ANY },
      params: {},
      encode: ({ encoder, op, inputs: { x, b }, outputs: { out } }) => {
        count(encoder, { x, next: out });
        encoder.dispatch(incrementKernel, {
          op,
          variant: "u32",
          buffers: { x: out, out },
          params: { perGroup: 4, microseconds: 0 },
          sizes: { groups: 1 },
        });
        for (let i = 0; i < 4; i++)
          encoder.dispatch(accumulateKernel, {
            op,
            variant: "u32",
            buffers: { x: b.slice(i, i + 1), y: undefined, total: out.slice(i, i + 1) },
            params: {},
            sizes: {},
          });
      },
    });
    const rule = defineFusion({
      calls: { first: "increment", second: "mix" },
      links: { "second.a": "first.out" },
      into: calling,
      tensors: { x: "first.x", b: "second.b", out: "second.out" },
    });
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const record = (e: CommandEncoder) => mix(e, { a: mix(e, { a: increment(e, { x }), b }), b, out });
    expect(await fusedBy([rule, countMixFusion], record)).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(208));
  });

  it("leave out what a later call writes over, where a program sees it", async () => {
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    const record = (e: CommandEncoder) => {
      mix(e, { a: count(e, { x, next: out }).next, b, out });
    };
    expect(await fusedBy([countMixFusion], record)).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("take no call twice", async () => {
    const [x, out] = [words(4, 5), words()];
    const record = (e: CommandEncoder) => {
      const { next } = count(e, { x });
      mix(e, { a: next, b: next, out });
    };
    expect(await fusedBy([countBothFusion], record)).toBe(0);
  });

  it("join two outputs in one call", async () => {
    const [x, y, out] = [words(4, 5), words(4, 100), words()];
    const record = (e: CommandEncoder) => mix(e, { a: count(e, { x }).next, b: count(e, { x: y }).next, out });
    expect(await fusedBy([countBothFusion], record)).toBe(2);
    expect([...out.readSync()]).toEqual(Array(4).fill(108));
  });

  it("join calls with the same input, whatever stands between", async () => {
    const [a, b, c, first, second, other] = [words(4, 1), words(4, 10), words(4, 20), words(), words(), words()];
    const record = (e: CommandEncoder) => {
      mix(e, { a, b, out: first });
      increment(e, { x: first, out: other });
      mix(e, { a, b: c, out: second });
    };
    // The first output is read before the second call: the joint call stands where the first one was.
    expect(await fusedBy([mixTwoFusion], record)).toBe(1);
    expect([first, second, other].map((t) => t.readSync()[0])).toEqual([12, 22, 13]);
  });

  it.each<
    [why: string, between: (e: CommandEncoder, t: Record<"a" | "c" | "first" | "second" | "other", Tensor>) => void]
  >([
    ["an input of the second call is made of the first", (e, { first, c }) => increment(e, { x: first, out: c })],
    ["the shared input changes in between", (e, { a }) => increment(e, { x: a, out: a })],
    [
      "the first output is read before the second call, and a part of the second one's too",
      (e, { first, second, other }) => {
        increment(e, { x: first, out: other });
        increment(e, { x: second.slice(0, 2), out: other.slice(0, 2) });
      },
    ],
    ["a dispatch between writes nothing", (e, { a, other }) => silent(e, a, other)],
    [
      "the first output is written over, and an input of the second call made",
      (e, { first, c, other }) => {
        increment(e, { x: other, out: first });
        increment(e, { x: other, out: c });
      },
    ],
  ])("leave calls with the same input apart: %s", async (_, between) => {
    const make = () => ({
      a: words(4, 1),
      b: words(4, 10),
      c: words(4, 20),
      first: words(),
      second: words(),
      other: words(),
    });
    const record =
      ({ a, b, c, first, second, other }: ReturnType<typeof make>) =>
      (e: CommandEncoder) => {
        mix(e, { a, b, out: first });
        between(e, { a, c, first, second, other });
        mix(e, { a, b: c, out: second });
      };
    const [plain, fused] = [make(), make()];
    await fusedBy([], record(plain));
    expect(await fusedBy([mixTwoFusion], record(fused))).toBe(0);
    for (const name of ["first", "second", "other"] as const)
      expect([...fused[name].readSync()]).toEqual([...plain[name].readSync()]);
  });

  it("come in the order of the list, each over the whole recording", async () => {
    const record = (e: CommandEncoder) => {
      const [x, y, b] = [words(4, 5), words(4, 100), words(4, 7)];
      const next = count(e, { x }).next;
      const out = mix(e, { a: next, b: count(e, { x: y }).next });
      return [mix(e, { a: count(e, { x: out }).next, b })];
    };
    expect(await fusedBy([countMixFusion, countBothFusion], record)).toBe(2);
    expect(await fusedBy([countBothFusion, countMixFusion], record)).toBe(3);
  });

  it("see the same elements in two shapes where the rule says so", async () => {
    const [x, b, out] = [words(4, 5).reshape([2, 2]), words(4, 100), words()];
    const record = (e: CommandEncoder) => mix(e, { a: count(e, { x }).next.reshape([4]), b, out });
    expect(await fusedBy([countMixFusion], record)).toBe(0);
    expect(await fusedBy([reshapedFusion], record)).toBe(1);
    expect([...out.readSync()]).toEqual(Array(4).fill(107));
  });

  it("do nothing where they would save no dispatch", async () => {
    const [x, b, out] = [words(1, 5), words(1, 100), words(1)];
    expect(await fusedBy([countMixFusion], (e) => mix(e, { a: count(e, { x }).next, b, out }))).toBe(0);
  });

  it("try other calls with the same input where the nearest one cannot move", async () => {
    const [a, b, c, first, second, third] = [words(4, 1), words(4, 10), words(4, 20), words(), words(), words()];
    const record = (e: CommandEncoder) => {
      mix(e, { a, b, out: first });
      mix(e, { a, b: c, out: second });
      // The second call's output is the third one's input: the third one goes with the first.
      mix(e, { a, b: second, out: third });
    };
    expect(await fusedBy([mixTwoFusion], record)).toBe(1);
    expect([first, second, third].map((t) => t.readSync()[0])).toEqual([12, 22, 24]);
  });

  it("write an output that was asked for into the tensor that the program has", async () => {
    const rule = defineFusion({ ...CHAIN, into: keepTwice, tensors: { ...CHAIN.tensors, twice: "first.twice" } });
    const [x, b, out] = [words(4, 5), words(4, 100), words()];
    let kept: Tensor | undefined;
    const fused = await fusedBy([rule], (e) => {
      const { next, twice } = count(e, { x, twice: true });
      kept = twice;
      mix(e, { a: next, b, out });
      return [twice];
    });
    expect(fused).toBe(1);
    expect([kept, out].map((t) => t?.readSync()[0])).toEqual([7, 107]);
  });

  it("name only options that have not their defaults", async () => {
    const rule = (more: object) => defineFusion({ ...CHAIN, ...more });
    const record = (start: 0 | 1) => (e: CommandEncoder) =>
      mix(e, { a: count(e, { x: words() }, { start }).next, b: words() });
    expect(await fusedBy([rule({})], record(0))).toBe(1);
    expect(await fusedBy([rule({})], record(1))).toBe(0);
    expect(await fusedBy([rule({ when: { "first.start": [1] } })], record(1))).toBe(1);
    expect(await fusedBy([rule({ options: { start: "first.start" } })], record(1))).toBe(1);
  });

  it("let errors through that are no refusals", () => {
    const broken = defineOp({
      name: "broken",
      summary: "an op with a mistake",
      inputs: { x: { dtype: ["u32"], shape: "N" }, b: { dtype: ["u32"], shape: "N" } },
      outputs: { out: { dtype: ["u32"], shape: "N" } },
      params: {},
      encode: () => {
        throw new TypeError("a mistake");
      },
    });
    const rule = defineFusion({ ...CHAIN, into: broken });
    const encoder = device.encoder({ optimize: { fuse: [rule] } });
    mix(encoder, { a: count(encoder, { x: words() }).next, b: words() });
    expect(() => encoder.finish()).toThrow("a mistake");
    encoder.dispose();
  });

  it.each([
    ["takes as many dispatches", "", 1],
    ["refuses its arguments", "not these", 64],
  ])("try only so many calls for an op that %s", (_, refusal, most) => {
    let tried = 0;
    const joint = defineOp({
      name: "joint",
      summary: "three sums",
      inputs: { x: ANY },
      outputs: { a: ANY, b: ANY, c: ANY },
      params: {},
      check: ({ fail }) => {
        tried++;
        if (refusal) fail("x", refusal, "these");
      },
      encode: ({ encoder, inputs: { x }, outputs: { a, b, c } }) => {
        for (const out of [a, b, c]) increment(encoder, { x, out });
      },
    });
    const rule = defineFusion({
      calls: { a: "increment", b: "increment", c: "increment" },
      same: { "a.x": "c.x", "b.x": "c.x" },
      into: joint,
      tensors: { x: "c.x", a: "a.out", b: "b.out", c: "c.out" },
    });
    const COUNT = 12;
    const x = words();
    const encoder = device.encoder({ optimize: { fuse: [rule] } });
    for (let i = 0; i < COUNT; i++) increment(encoder, { x, out: words() });
    encoder.finish().dispose();
    expect(tried).toBeGreaterThanOrEqual(COUNT / 2);
    expect(tried).toBeLessThanOrEqual(COUNT * most);
  });

  it("take a time that grows with the recording, not with its square", () => {
    const timeOf = (rules: readonly Fusion[]) => {
      const [x, b] = [words(2, 5), words(2, 100)];
      const encoder = device.encoder({ optimize: { fuse: rules, reorder: false } });
      for (let i = 0; i < 3000; i++) mix(encoder, { a: x, b, out: words(2) });
      const begin = performance.now();
      encoder.finish().dispose();
      return performance.now() - begin;
    };
    const plain = timeOf([]);
    // Looking back over all of them for each takes a hundred times as long.
    expect(timeOf([countBothFusion, mixTwoFusion, countMixFusion])).toBeLessThan(20 * plain + 200);
  });
});
