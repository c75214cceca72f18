import { Device } from "@mlxts/core";
import type { BenchCase } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { alternate, spreadOf, timedCase, timedPeer } from "../src/index.ts";
import { peakReadKernel } from "../src/limits.ts";
import { onnxPeer } from "../src/onnx_peer.ts";

describe("spreadOf", () => {
  it("has the middle of an odd number of values, and the mean of two of an even one", () => {
    expect(spreadOf([5, 1, 3])).toEqual({ median: 3, least: 1, most: 5, samples: 3 });
    expect(spreadOf([4, 1, 2, 8])).toEqual({ median: 3, least: 1, most: 8, samples: 4 });
  });
});

describe("alternate", () => {
  const log: string[] = [];
  const timed = (name: string, time: number) => ({
    run: () => {
      log.push(name);
      return Promise.resolve(time);
    },
  });

  it("measures in turn, each second round in reverse", async () => {
    const spreads = await alternate([timed("a", 1), timed("b", 2), timed("c", 3)], 2);
    expect(log).toEqual(["a", "b", "c", "c", "b", "a"]);
    expect(spreads.map(({ median }) => median)).toEqual([1, 2, 3]);
  });

  it("stops where the signal says so", async () => {
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(alternate([timed("a", 1)], 1, signal)).rejects.toThrow("enough");
  });
});

it("times a case by replaying it, twice the work in about twice the time", async () => {
  using device = Device.open("cpu", { threads: 1 });
  const work = (repeats: number): BenchCase => ({
    name: "read",
    bytes: 0,
    flops: 0,
    setup(device) {
      const [x, out] = [device.tensor("f32", [1 << 16]), device.tensor("f32", [2])];
      const params = { perGroup: 1 << 16, repeats };
      return {
        encode: (encoder) =>
          encoder.dispatch(peakReadKernel, { variant: "f32", buffers: { x, out }, params, sizes: { groups: 1 } }),
      };
    },
  });
  const timed = [await timedCase(work(4), device), await timedCase(work(40), device)];
  const [short, long] = await alternate(timed, 9);
  expect((long?.least ?? 0) / (short?.least ?? 1)).toBeGreaterThan(4);
});

it("takes a peer's time for each of the case's calls that one call of it stands for", async () => {
  const setup = () => Promise.resolve(() => new Promise((done) => setTimeout(done, 20)));
  const time = async (calls?: number) => {
    const timed = await timedPeer({ name: "sleeps", setup, ...(calls && { calls }) }, 1);
    return (await timed?.run()) as number;
  };
  expect(await time()).toBeGreaterThan(15_000);
  expect(await time(20)).toBeLessThan(15_000);
});

it("has no time of a peer that is not installed", async () => {
  expect(await timedPeer({ name: "none", setup: () => Promise.resolve(undefined) }, 1)).toBeUndefined();
  const graph = {
    operator: "Relu",
    inputs: ["x"],
    feeds: { x: { shape: [1], data: new Float32Array(1) } },
    outputs: { y: [1] },
  };
  expect(onnxPeer(graph).name).toBe("onnxruntime Relu");
});
