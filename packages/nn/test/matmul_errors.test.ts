import { Device } from "@mlxts/core";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe } from "vitest";
import { matmul, matmulSwiglu, multiMatmul } from "../src/index.ts";

describe("matmul", () => {
  const device = Device.open();
  const elsewhere = Device.open();
  afterAll(() => {
    device.dispose();
    elsewhere.dispose();
  });
  const given = { x: device.tensor("f32", [2, 3, 8]), weight: device.tensor("f32", [5, 8]) };
  refusesEach(
    device,
    matmul,
    { inputs: given, options: {} },
    {
      "no weight": {
        inputs: { weight: undefined },
        message: "`weight` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "an unknown tensor": {
        inputs: { w: given.x },
        message: "`w` must be one of x, weight, bias, out, got an unknown tensor name",
        kind: "TypeError",
      },
      "an unknown option": {
        options: { transposed: true },
        message: "`transposed` must be one of transpose, outDtype, got an unknown option",
        kind: "TypeError",
      },
      "transpose of another kind": {
        options: { transpose: 1 },
        message: "`transpose` must be a boolean, got 1",
        kind: "TypeError",
      },
      "an unknown outDtype": {
        options: { outDtype: "i32" },
        message: "`outDtype` must be one of f32, f16, bf16, got i32",
      },
      integers: {
        inputs: { x: device.tensor("i32", [3, 8]) },
        message: "`x` must have dtype f32 or f16 or bf16, got i32",
      },
      "an integer weight": {
        inputs: { weight: device.tensor("u8", [5, 8]) },
        message: "`weight` must have dtype f32 or f16 or bf16, got u8",
      },
      "a tensor of another device": {
        inputs: { x: elsewhere.tensor("f32", [3, 8]) },
        message: "`x` must belong to the encoder's device, got a tensor of another device",
      },
      "x of another inner dimension": {
        inputs: { x: device.tensor("f32", [2, 3, 5]) },
        message: "`x` must have shape [2, 3, 8], got [2, 3, 5]",
      },
      "x of another inner dimension, not transposed": {
        options: { transpose: false },
        message: "`x` must have shape [2, 3, 5], got [2, 3, 8]",
      },
      "a weight of three dimensions": {
        inputs: { weight: device.tensor("f32", [1, 5, 8]) },
        message: "`weight` must have shape [rows, cols], got [1, 5, 8]",
      },
      "a bias of another length": {
        inputs: { bias: device.tensor("f32", [8]) },
        message: "`bias` must have shape [5], got [8]",
      },
      "a bias of another dtype": {
        inputs: { bias: device.tensor("bf16", [5]) },
        message: "`bias` must have dtype f32, got bf16",
      },
      "an output of another shape": {
        inputs: { out: device.tensor("f32", [6, 5]) },
        message: "`out` must have shape [2, 3, 5], got [6, 5]",
      },
      "an output of another dtype": {
        inputs: { out: device.tensor("f32", [2, 3, 5]) },
        options: { outDtype: "f16" },
        message: "`out` must have dtype f16, got f32",
      },
      "an output over x": {
        inputs: { out: given.x.view(4, [2, 3, 5]) },
        message: "`out` must not overlap `x`, got overlapping views",
      },
      "an output that is x": {
        inputs: { weight: device.tensor("f32", [8, 8]), out: given.x },
        message: "`out` must not overlap `x`, got overlapping views",
      },
    },
  );
});

describe("joint products", () => {
  const device = Device.open();
  afterAll(() => device.dispose());
  const x = device.tensor("f32", [3, 8]);
  const weight = device.tensor("f32", [5, 8]);
  const narrow = device.tensor("f32", [5, 7]);
  refusesEach(
    device,
    matmulSwiglu,
    { inputs: { x, gate: weight, up: device.tensor("f32", [5, 8]) }, options: {} },
    {
      "no up": { inputs: { up: undefined }, message: "`up` must be a Tensor, got undefined", kind: "TypeError" },
      "up of another width": { inputs: { up: narrow }, message: "`up` must have shape [5, 8], got [5, 7]" },
      "up of another dtype": {
        inputs: { up: device.tensor("f16", [5, 8]) },
        message: "`up` must have dtype f32, got f16",
      },
      "an unknown outDtype": {
        options: { outDtype: "i32" },
        message: "`outDtype` must be one of f32, f16, bf16, got i32",
      },
      "out over x": {
        inputs: {
          x: device.tensor("f32", [3, 5]),
          gate: device.tensor("f32", [5, 5]),
          up: device.tensor("f32", [5, 5]),
          out: x,
        },
        message: "`out` must have shape [3, 5], got [3, 8]",
      },
    },
  );
  refusesEach(
    device,
    multiMatmul,
    { inputs: { x, a: weight, b: device.tensor("f32", [2, 8]) }, options: {} },
    {
      "one matrix alone": {
        inputs: { b: undefined },
        message: "`b` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "a matrix of another width": { inputs: { b: narrow }, message: "`b` must have shape [5, 8], got [5, 7]" },
      "a matrix of another dtype": {
        inputs: { b: device.tensor("bf16", [2, 8]) },
        message: "`b` must have dtype f32, got bf16",
      },
      "a product without its matrix": {
        inputs: { outC: true },
        message: "`c` must be given with `outC`, got undefined",
      },
      "a product of another shape": {
        inputs: { outB: device.tensor("f32", [3, 5]) },
        message: "`outB` must have shape [3, 2], got [3, 5]",
      },
    },
  );
});
