import { Device } from "@mlxts/core";
import { afterAll, expect, it } from "vitest";
import { describe } from "../src/description.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

it("lists memory once, and tells values apart in which other tensors share it", () => {
  const [a, b] = [device.tensor("f32", [4]), device.tensor("f32", [4])];
  const of = (value: unknown) => {
    const tensors: unknown[] = [];
    return [describe(value, tensors as never), tensors];
  };
  expect(of({ one: a, two: b })).toEqual(["{one:f32[4]0,two:f32[4]0}", [a, b]]);
  expect(of({ one: a, two: a })).toEqual(["{one:f32[4]0,two:f32[4]=0}", [a]]);
  expect(of([b, a, a.reshape([2, 2]), b])).toEqual(["[f32[4]0,f32[4]0,f32[2,2]=1,f32[4]=0]", [b, a]]);
});
