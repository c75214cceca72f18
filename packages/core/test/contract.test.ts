// The number by which core knows a library that was built from other declarations than those beside it.
import { describe, expect, it } from "vitest";
import { contractOf, contractsSource } from "../src/contract.ts";
import { defineKernel } from "../src/index.ts";
import { caught, testDevice } from "./helpers.ts";
import { probeLibrary } from "./kernels/probe.ts";

const device = testDevice();

const declaration = {
  library: probeLibrary,
  name: "stale",
  variants: ["u32"],
  buffers: { x: "read", out: "write" },
  params: { rows: "u32" },
  launchParams: { cpu: { width: "u32" }, gpu: { width: "u32" } },
  constants: { cpu: { most: 8 }, gpu: { most: 4 } },
  scratch: { cpu: { left: "f32" }, gpu: { left: "f32" } },
  launch: {
    cpu: ({ rows }: { rows: number }) => ({ threadgroups: [1, 1, 1], params: { width: 1 }, scratch: { left: [rows] } }),
  },
} as const;
const stale = defineKernel(declaration as never);
const changed = (change: object) => contractOf(defineKernel({ ...declaration, ...change } as never));
const rule = (width: (rows: number) => number, left: (rows: number) => number) => ({
  launch: {
    cpu: ({ rows }: { rows: number }) => ({
      threadgroups: [1, 1, 1],
      params: { width: width(rows) },
      scratch: { left: [left(rows)] },
    }),
  },
});

describe("a kernel's contract changes with", () => {
  it.each<[string, object]>([
    ["the order of buffers", { buffers: { out: "write", x: "read" } }],
    ["a buffer that may be absent", { buffers: { x: "read?", out: "write" } }],
    ["a param", { params: { rows: "u32", cols: "u32" } }],
    ["a param's type", { params: { rows: "i32" } }],
    ["a constant", { constants: { cpu: { most: 9 }, gpu: { most: 4 } } }],
    ["the dtype of scratch", { scratch: { cpu: { left: "bf16" }, gpu: { left: "f32" } } }],
    [
      "the size of scratch",
      rule(
        () => 1,
        (rows) => rows + 1,
      ),
    ],
    [
      "the size of scratch for many rows only",
      rule(
        () => 1,
        (rows) => (rows > 1000 ? rows + 1 : rows),
      ),
    ],
    [
      "what the launch rule decides",
      rule(
        (rows) => rows,
        (rows) => rows,
      ),
    ],
  ])("%s", (_, change) => expect(changed(change)).not.toBe(contractOf(stale)));
});

describe("it does not change with", () => {
  it.each<[string, object]>([
    [
      "how the rule is written",
      rule(
        () => 2 - 1,
        (rows) => 2 * rows - rows,
      ),
    ],
    ["what concerns GPUs", { constants: { cpu: { most: 8 }, gpu: { most: 5 } }, scratch: { cpu: { left: "f32" } } }],
    ["variants", { variants: ["u32", "f32"] }],
  ])("%s", (_, change) => expect(changed(change)).toBe(contractOf(stale)));

  it("a launch rule that refuses made-up sizes", () => {
    const refusing = {
      launch: { cpu: ({ shape }: { shape: number[] }) => ({ threadgroups: [shape.map(() => 1), 1, 1] }) },
    };
    expect(changed(refusing)).toBe(changed(refusing));
  });
});

it("a library that was built for another one is refused, with the remedy", () => {
  const tensor = () => device.tensor("u32", [1]);
  const args = { variant: "u32", buffers: { x: tensor(), out: tensor() }, params: { rows: 1 }, sizes: { rows: 1 } };
  const { code, message } = caught(() => device.encoder().dispatch(stale as never, args as never));
  expect(code).toBe("Io");
  expect(message).toMatch(
    /^the library `probe` has its kernel `stale` from other sources than these: \S+probe\.\w+\.so — reinstall the package on this machine, or build it in a clone with `npm run native`$/,
  );
});

it("is written for the compiler", () => {
  expect(contractsSource([stale])).toContain(`#include "contract.h"\n\nMLXTS_CONTRACT(stale, ${contractOf(stale)}u)\n`);
});
