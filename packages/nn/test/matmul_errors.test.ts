import { Device, type Tensor } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { matmul } from "../src/index.ts";

describe("matmul", () => {
  const device = Device.open();
  const elsewhere = Device.open();
  afterAll(() => {
    device.dispose();
    elsewhere.dispose();
  });
  const make = () => ({ x: device.tensor("f32", [2, 3, 8]), weight: device.tensor("f32", [5, 8]) });
  type Given = Record<string, Tensor | undefined>;

  it.each<[string, (t: ReturnType<typeof make>) => Given, Record<string, unknown>, string]>([
    ["no weight", ({ x }) => ({ x }), {}, "matmul: `weight` must be a Tensor, got undefined"],
    [
      "an unknown tensor",
      (t) => ({ ...t, w: t.x }),
      {},
      "matmul: `w` must be one of x, weight, bias, out, got an unknown tensor name",
    ],
    [
      "an unknown option",
      (t) => t,
      { transposed: true },
      "matmul: `transposed` must be one of transpose, outDtype, got an unknown option",
    ],
    ["transpose of another kind", (t) => t, { transpose: 1 }, "matmul: `transpose` must be a boolean, got 1"],
    ["an unknown outDtype", (t) => t, { outDtype: "i32" }, "matmul: `outDtype` must be one of f32, f16, bf16, got i32"],
    [
      "integers",
      (t) => ({ ...t, x: device.tensor("i32", [3, 8]) }),
      {},
      "matmul: `x` must have dtype f32 or f16 or bf16, got i32",
    ],
    [
      "an integer weight",
      (t) => ({ ...t, weight: device.tensor("u8", [5, 8]) }),
      {},
      "matmul: `weight` must have dtype f32 or f16 or bf16, got u8",
    ],
    [
      "a tensor of another device",
      (t) => ({ ...t, x: elsewhere.tensor("f32", [3, 8]) }),
      {},
      "matmul: `x` must belong to the encoder's device, got a tensor of another device",
    ],
    [
      "x of another inner dimension",
      (t) => ({ ...t, x: device.tensor("f32", [2, 3, 5]) }),
      {},
      "matmul: `x` must have shape [2, 3, 8], got [2, 3, 5]",
    ],
    [
      "x of another inner dimension, not transposed",
      (t) => t,
      { transpose: false },
      "matmul: `x` must have shape [2, 3, 5], got [2, 3, 8]",
    ],
    [
      "a weight of three dimensions",
      (t) => ({ ...t, weight: device.tensor("f32", [1, 5, 8]) }),
      {},
      "matmul: `weight` must have shape [rows, cols], got [1, 5, 8]",
    ],
    [
      "a bias of another length",
      (t) => ({ ...t, bias: device.tensor("f32", [8]) }),
      {},
      "matmul: `bias` must have shape [5], got [8]",
    ],
    [
      "a bias of another dtype",
      (t) => ({ ...t, bias: device.tensor("bf16", [5]) }),
      {},
      "matmul: `bias` must have dtype f32, got bf16",
    ],
    [
      "an output of another shape",
      (t) => ({ ...t, out: device.tensor("f32", [6, 5]) }),
      {},
      "matmul: `out` must have shape [2, 3, 5], got [6, 5]",
    ],
    [
      "an output of another dtype",
      (t) => ({ ...t, out: device.tensor("f32", [2, 3, 5]) }),
      { outDtype: "f16" },
      "matmul: `out` must have dtype f16, got f32",
    ],
    [
      "an output over x",
      (t) => ({ ...t, out: t.x.view(4, [2, 3, 5]) }),
      {},
      "matmul: `out` must not overlap `x`, got overlapping views",
    ],
    [
      "an output that is x",
      ({ x }) => ({ x, weight: device.tensor("f32", [8, 8]), out: x }),
      {},
      "matmul: `out` must not overlap `x`, got overlapping views",
    ],
  ])("refuses %s", (_, change, options, message) => {
    const encoder = device.encoder();
    let refused: Error | undefined;
    try {
      matmul(encoder, change(make()) as never, options);
    } catch (error) {
      refused = error as Error;
    }
    expect(refused?.message).toBe(message);
    expect(encoder.finish().dispatches).toBe(0);
  });
});
