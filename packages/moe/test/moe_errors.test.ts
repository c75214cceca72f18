import { Device, type Dtype, ELSEWHERE } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusalTests, type WrongCall } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { moeCombine, moeCombineRmsNorm, moeKeep, moeOrder, moePages, moeRoute } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
const encoder = () => device.encoder();
const route = (options: Record<string, unknown>, shape = [2, 12]) =>
  moeRoute(encoder(), { logits: t(shape) }, { score: "sigmoid", topK: 2, ...options } as never);
const y = () => t([2, 3, 4]);
const weights = () => t([2, 3]);
const norm = (inputs: Record<string, unknown>, options: Record<string, unknown> = {}) =>
  moeCombineRmsNorm(
    encoder(),
    { y: y(), weights: weights(), normWeight: t([4]), ...inputs } as never,
    options as never,
  );
const pages = (inputs: Record<string, unknown>, options: Record<string, unknown> = {}) =>
  moePages(encoder(), { stack: t([4, 6], "bf16"), chosen: t([4], "u32"), ...inputs }, {
    advice: "fetch",
    ...options,
  } as never);

const MESSAGES: WrongCall[] = [
  [
    "no score",
    () => route({ score: undefined }),
    "moeRoute: `score` must be one of softmax, sigmoid, got undefined",
    "TypeError",
  ],
  ["no topK", () => route({ topK: undefined }), "moeRoute: `topK` must be a number, got undefined", "TypeError"],
  ["no expert", () => route({ topK: 0 }), "moeRoute: `topK` must be an integer ≥ 1, got 0"],
  [
    "more than there are",
    () => route({ topK: 13 }),
    "moeRoute: `topK` must be at most the 12 experts that can be chosen, got 13",
  ],
  ["groups", () => route({ groups: 5 }), "moeRoute: `groups` must divide the 12 experts, got 5"],
  ["top groups", () => route({ groups: 4, topGroups: 5 }), "moeRoute: `topGroups` must be at most the 4 groups, got 5"],
  [
    "out of reach",
    () => route({ groups: 4, topGroups: 2, topK: 7 }),
    "moeRoute: `topK` must be at most the 6 experts that can be chosen, got 7",
  ],
  ["scale", () => route({ scale: 0 }), "moeRoute: `scale` must be a finite number > 0, got 0"],
  [
    "infinite scale",
    () => route({ scale: Number.POSITIVE_INFINITY }),
    "moeRoute: `scale` must be a finite number > 0, got Infinity",
  ],
  ["too many experts", () => route({}, [1, 65537]), "moeRoute: `logits` must have at most 65536 experts, got 65537"],
  [
    "bias of another dtype",
    () => moeRoute(encoder(), { logits: t([2, 4]), bias: t([4], "bf16") }, { score: "sigmoid", topK: 1 }),
    "moeRoute: `bias` must have dtype f32, got bf16",
  ],
  [
    "bias of another length",
    () => moeRoute(encoder(), { logits: t([2, 4]), bias: t([5]) }, { score: "sigmoid", topK: 1 }),
    "moeRoute: `bias` must have shape [4], got [5]",
  ],
  [
    "indices of another shape",
    () => moeRoute(encoder(), { logits: t([2, 4]), indices: t([2, 4], "u32") }, { score: "sigmoid", topK: 1 }),
    "moeRoute: `indices` must have shape [2, 1], got [2, 4]",
  ],
  [
    "no experts",
    () => moeOrder(encoder(), { indices: t([2, 3], "u32") }, { experts: 0 }),
    "moeOrder: `experts` must be an integer ≥ 1 and ≤ 65536, got 0",
  ],
  [
    "indices of another dtype",
    () => moeOrder(encoder(), { indices: t([2, 3], "i32") }, { experts: 4 }),
    "moeOrder: `indices` must have dtype u32, got i32",
  ],
  [
    "weights",
    () => moeCombine(encoder(), { y: y(), weights: t([2, 4]) }),
    "moeCombine: `weights` must have shape [2, 3], got [2, 4]",
  ],
  [
    "weights of another dtype",
    () => moeCombine(encoder(), { y: y(), weights: t([2, 3], "bf16") }),
    "moeCombine: `weights` must have dtype f32, got bf16",
  ],
  [
    "gate without a shared expert, and a norm",
    () => norm({ sharedGate: t([2, 1]) }),
    "moeCombineRmsNorm: `sharedGate` must be given with `shared`, got no `shared`",
  ],
  [
    "no weight",
    () => norm({ normWeight: undefined }),
    "moeCombineRmsNorm: `normWeight` must be a Tensor, got undefined",
    "TypeError",
  ],
  [
    "weight of the norm",
    () => norm({ normWeight: t([5]) }),
    "moeCombineRmsNorm: `normWeight` must have shape [4], got [5]",
  ],
  [
    "weight of another dtype",
    () => norm({ normWeight: t([4], "f16") }),
    "moeCombineRmsNorm: `normWeight` must have dtype f32, got f16",
  ],
  ["eps", () => norm({}, { eps: -1 }), "moeCombineRmsNorm: `eps` must be a finite number ≥ 0, got -1"],
  ["offset", () => norm({}, { weightOffset: 2 }), "moeCombineRmsNorm: `weightOffset` must be one of 0, 1, got 2"],
  [
    "norm in the place of its sum",
    () => {
      const out = t([2, 4]);
      return norm({ sum: out, out });
    },
    "moeCombineRmsNorm: `out` must not overlap `sum`, got overlapping views",
  ],
  [
    "norm in the place of the residual",
    () => {
      const residual = t([2, 4]);
      return norm({ residual, out: residual });
    },
    "moeCombineRmsNorm: `out` must not overlap `residual`, got overlapping views",
  ],
  [
    "order",
    () => moeCombine(encoder(), { y: y(), weights: weights(), order: t([2, 3], "i32") }),
    "moeCombine: `order` must have shape [6], got [2, 3]",
  ],
  [
    "gate without a shared expert",
    () => moeCombine(encoder(), { y: y(), weights: weights(), sharedGate: t([2, 1]) }),
    "moeCombine: `sharedGate` must be given with `shared`, got no `shared`",
  ],
  [
    "shared expert of another dtype",
    () => moeCombine(encoder(), { y: y(), weights: weights(), shared: t([2, 4], "f16") }),
    "moeCombine: `shared` must have dtype f32, got f16",
  ],
  [
    "nothing kept",
    () => moeKeep(encoder(), { indices: t([2, 3], "u32"), ages: t([4], "u32") }, { keep: 0 }),
    "moeKeep: `keep` must be an integer ≥ 1 and ≤ 65536, got 0",
  ],
  [
    "ages of another dtype",
    () => moeKeep(encoder(), { indices: t([2, 3], "u32"), ages: t([4]) }, { keep: 2 }),
    "moeKeep: `ages` must have dtype u32, got f32",
  ],
  [
    "too many ages",
    () => moeKeep(encoder(), { indices: t([2, 3], "u32"), ages: t([65537], "u32") }, { keep: 2 }),
    "moeKeep: `ages` must have at most 65536 experts, got 65537",
  ],
  [
    "chosen of another length",
    () => moeKeep(encoder(), { indices: t([2, 3], "u32"), ages: t([4], "u32"), chosen: t([5], "u32") }, { keep: 2 }),
    "moeKeep: `chosen` must have shape [4], got [5]",
  ],
  [
    "no advice",
    () => pages({}, { advice: undefined }),
    "moePages: `advice` must be one of fetch, evict, got undefined",
    "TypeError",
  ],
  [
    "a stack of other experts",
    () => pages({ chosen: t([5], "u32") }),
    "moePages: `stack` must have 5 as its first dimension, got [4, 6]",
  ],
  [
    "elements without starts",
    () => pages({}, { elements: 6 }),
    "moePages: `elements` must be given with `starts`, and only then, got 6",
  ],
  [
    "starts without elements",
    () => pages({ starts: t([4], "u32") }),
    "moePages: `elements` must be given with `starts`, and only then, got undefined",
  ],
  [
    "more elements than there are",
    () => pages({ starts: t([4], "u32") }, { elements: 25 }),
    "moePages: `elements` must be at most the 24 of `stack`, got 25",
  ],
  [
    "starts of another length",
    () => pages({ starts: t([3], "u32") }, { elements: 6 }),
    "moePages: `chosen` must have shape [3], got [4]",
  ],
];

refusalTests(MESSAGES);

describe.each(ORDERS)("wrong numbers in the data on %s", (_, open) => {
  it.each([[[700, 90, 799]], [[34, 33, 40]], [[69, 37, 5]]])("of moeOrder: %j", async (wrong) => {
    using device: Device = open();
    const given = new Uint32Array(800).fill(3);
    for (const at of wrong) given[at] = 1000 + at;
    const order = device.tensor("i32", [800], new Int32Array(800).fill(-7));
    const offsets = device.tensor("i32", [6], new Int32Array(6).fill(-7));
    const encoder = device.encoder();
    moeOrder(encoder, { indices: device.tensor("u32", [100, 8], given), order, offsets }, { experts: 5 });
    const first = Math.min(...wrong);
    await expect(encoder.commit()).rejects.toThrow(
      `moeOrder: \`indices\` must be from 0 to 4, got ${1000 + first} at position ${first}`,
    );
    for (const tensor of [order, offsets]) expect(new Set(tensor.typedArray())).toEqual(new Set([-7]));
  });

  it.each([[[700, 90, 799]], [[34, 33, 40]], [[69, 37, 5]]])("of moeKeep: %j", async (wrong) => {
    using device: Device = open();
    const given = new Uint32Array(800).fill(3);
    for (const at of wrong) given[at] = 1000 + at;
    const untouched = () => device.tensor("u32", [5], new Uint32Array(5).fill(77));
    const outputs = { aged: untouched(), chosen: untouched(), evicted: untouched() };
    const encoder = device.encoder();
    const ages = device.tensor("u32", [5]);
    moeKeep(encoder, { indices: device.tensor("u32", [100, 8], given), ages, ...outputs }, { keep: 2 });
    const first = Math.min(...wrong);
    await expect(encoder.commit()).rejects.toThrow(
      `moeKeep: \`indices\` must be from 0 to 4, got ${1000 + first} at position ${first}`,
    );
    for (const tensor of Object.values(outputs)) expect(new Set(tensor.typedArray())).toEqual(new Set([77]));
  });

  it.each([
    ["one too far", [99, 5], 701],
    ["beyond the end", [98], 5000],
    ["as large as a start can be", [150, 3, 60], ELSEWHERE - 1],
  ])("of moePages' starts: %s", async (_, places, start) => {
    using device: Device = open();
    const starts = new Uint32Array(200).fill(700);
    for (const at of places) starts[at] = start;
    starts[2] = ELSEWHERE;
    const encoder = device.encoder();
    moePages(
      encoder,
      {
        stack: device.tensor("f32", [1000]),
        starts: device.tensor("u32", [200], starts),
        chosen: device.tensor("u32", [200]),
      },
      { advice: "evict", elements: 300 },
    );
    await expect(encoder.commit()).rejects.toThrow(
      `moePages: \`starts\` must leave room for 300 of 1000 elements, got ${start} at position ${Math.min(...places)}`,
    );
  });

  const combine = async (order: number[]) => {
    using device: Device = open();
    const encoder = device.encoder();
    const pairs = order.length;
    moeCombine(encoder, {
      y: device.tensor("f32", [pairs / 2, 2, 5]),
      weights: device.tensor("f32", [pairs / 2, 2]),
      order: device.tensor("i32", [pairs], order),
    });
    await encoder.commit();
  };
  const ascending = Array.from({ length: 600 }, (_, i) => i);

  it.each([
    ["the first beyond its end", [5, 300, 599], 600],
    ["a negative one", [17, 555], -1],
  ])("of moeCombine's order: %s", async (_, places, value) => {
    const order = ascending.map((pair) => (places.includes(pair) ? value : pair));
    await expect(combine(order)).rejects.toThrow(
      `moeCombine: \`order\` must be from 0 to 599, got ${value} at position ${places[0]}`,
    );
  });

  it("of moeCombine's order: a pair twice", async () => {
    const order = ascending.map((pair) => (pair === 44 || pair === 301 ? 7 : pair));
    await expect(combine(order)).rejects.toThrow("moeCombine: `order` must be a permutation, got one without 44");
  });
});
