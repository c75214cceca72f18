import { Device, type Dtype } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusalTests, type WrongCall } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { moeCombine, moeOrder, moeRoute } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
const encoder = () => device.encoder();
const route = (options: Record<string, unknown>, shape = [2, 12]) =>
  moeRoute(encoder(), { logits: t(shape) }, { score: "sigmoid", topK: 2, ...options } as never);
const y = () => t([2, 3, 4]);
const weights = () => t([2, 3]);

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
