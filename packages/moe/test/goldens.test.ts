import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { moeRoute } from "../src/index.ts";

const routers = goldens("goldens/moe_routers.safetensors");
const names = [...new Set(routers.names.map((name) => name.replace(/\.\w+$/, "")))];

const OPTIONS: Record<string, Omit<Parameters<typeof moeRoute>[2] & object, "topK">> = {
  "tiny-qwen3-next": { score: "softmax", normalize: true },
  "tiny-deepseek-v3": { score: "sigmoid", normalize: true, groups: 2, topGroups: 1, scale: 2.5 },
  "deepseek-v2.greedy": { score: "softmax", scale: 16 },
  "deepseek-v2.group_limited_greedy": { score: "softmax", groups: 8, topGroups: 3, groupScore: "max", scale: 16 },
};

describe.each(DEVICES)("routers of transformers on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  it.each(names)("%s", async (name) => {
    const [tokens = 0, topK = 0] = routers.tensor(`${name}.indices`).shape;
    const stored = (part: string) => {
      const { shape } = routers.tensor(`${name}.${part}`);
      return device.tensor("f32", shape, routers.numbers(`${name}.${part}`));
    };
    const encoder = device.encoder();
    const bias = routers.has(`${name}.bias`) ? stored("bias") : undefined;
    const { indices, weights } = moeRoute(
      encoder,
      { logits: stored("logits"), bias },
      { ...(OPTIONS[name.replace(/\.router\d+$/, "")] as { score: "softmax" }), topK },
    );
    await encoder.commit();
    const [chosen, given] = [await indices.readNumbers(), await weights.readNumbers()];
    // The goldens have the experts of a token in ascending order.
    const ascending = Array.from({ length: tokens }, (_, n) =>
      Array.from({ length: topK }, (_, j) => n * topK + j).sort(
        (a, b) => (chosen[a] as number) - (chosen[b] as number),
      ),
    ).flat();
    expect(ascending.map((i) => chosen[i])).toEqual([...routers.numbers(`${name}.indices`)]);
    const ours = ascending.map((i) => given[i] as number);
    expect(compare(ours, routers.numbers(`${name}.weights`)).ratio).toBeLessThan(5e-7);
  });
});
