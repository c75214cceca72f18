import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { environment } from "../src/env.ts";
import { show } from "../src/errors.ts";
import { ArgumentRangeError, ArgumentTypeError, MlxtsError, wrongKind, wrongValue } from "../src/index.ts";
import { message, under } from "./helpers.ts";

describe("errors", () => {
  it("are of JavaScript's kinds and carry what they say", () => {
    const kind = wrongKind("op", "x", "be a Tensor", null);
    const value = wrongValue("op", "eps", "be > 0", -1, "use 1e-6");
    expect(kind).toBeInstanceOf(ArgumentTypeError);
    expect(kind).toBeInstanceOf(TypeError);
    expect(value).toBeInstanceOf(ArgumentRangeError);
    expect(value).toBeInstanceOf(RangeError);
    expect([kind.message, value.message]).toEqual([
      "op: `x` must be a Tensor, got null",
      "op: `eps` must be > 0, got -1 — use 1e-6",
    ]);
    for (const error of [kind, value]) expect([error.code, error.transient]).toEqual(["InvalidArgument", false]);
    expect(value.fault).toEqual({ op: "op", argument: "eps", rule: "be > 0", value: "-1", remedy: "use 1e-6" });
  });

  it("are transient where trying again may help", () => {
    const transient = (cause: string) => new MlxtsError("CommandBuffer", "", { cause }).transient;
    const causes = ["timeout", "interrupted", "outOfMemory", "unknown", "pageFault", "invalidResource", "deviceLost"];
    expect(causes.map(transient)).toEqual([true, true, true, true, false, false, false]);
    expect(new MlxtsError("Io", "", { cause: "timeout" }).transient).toBe(false);
    expect(new MlxtsError("Busy", "").transient).toBe(true);
  });

  it("are all in the README", () => {
    const read = (path: string) => readFileSync(new URL(path, import.meta.url), "utf8");
    const [union = ""] = /export type ErrorCode =[^;]+/.exec(read("../../common/src/errors.ts")) ?? [];
    const codes = [...union.matchAll(/"(\w+)"/g)].map(([, code]) => code);
    expect(codes).toContain("Disposed");
    const documented = [...read("../README.md").matchAll(/^\| `([A-Z][A-Za-z]+)` +\| `/gm)].map(([, code]) => code);
    expect(documented.sort()).toEqual(codes.filter((code) => code !== "InvalidArgument").sort());
  });

  it("show a text that reads as another value in quotes", () => {
    const got = (value: unknown) => wrongKind("op", "x", "be something else", value).message.split(", got ")[1];
    expect(["0.7", "true", "null", "undefined", "", " ", "-1e3", "text"].map(got)).toEqual([
      '"0.7"',
      '"true"',
      '"null"',
      '"undefined"',
      '""',
      '" "',
      '"-1e3"',
      "text",
    ]);
    expect(wrongValue("op", "mode", "be one of a, b", "").message).toBe('op: `mode` must be one of a, b, got ""');
    expect(wrongValue("op", "size", "be 3", "4").message).toBe("op: `size` must be 3, got 4");
  });

  it("show any value in a few words", () => {
    expect(
      [
        undefined,
        null,
        "text",
        1n,
        [1, [2]],
        Array(20).fill(0),
        new Float32Array(4),
        {},
        Object.create(null),
        () => 1,
        Symbol("s"),
      ].map(show),
    ).toEqual([
      "undefined",
      "null",
      "text",
      "1",
      "[1, [2]]",
      "an array of 20",
      "Float32Array(16 bytes)",
      "Object",
      "an object",
      "a function",
      "Symbol(s)",
    ]);
  });
});

describe("the environment", () => {
  it("has defaults", () => {
    expect(under({}, environment)).toEqual({
      device: undefined,
      threads: undefined,
      cpuLevel: undefined,
      debug: 0,
      validate: false,
      poison: false,
      optimize: true,
      capture: undefined,
      metalSimulator: false,
      simulatedCuda: false,
      simulatedInstances: false,
    });
  });

  it("is read anew, and empty means unset", () => {
    const set = {
      MLXTS_DEVICE: "cpu",
      MLXTS_THREADS: "3",
      MLXTS_CPU_LEVEL: "sse2",
      MLXTS_DEBUG: "2",
      MLXTS_VALIDATE: "1",
      MLXTS_POISON: "",
      MLXTS_FUSE: "0",
      MLXTS_CAPTURE: "trace.gputrace",
      MLXTS_METAL_SIM: "1",
      MLXTS_METAL_SIM_TRANSLATION: "cuda",
      MLXTS_METAL_SIM_INSTANCES: "1",
      MLXTS_CUDA_DRIVER: "./libcuda.so",
    };
    expect(under(set, environment)).toEqual({
      device: "cpu",
      threads: 3,
      cpuLevel: "sse2",
      debug: 2,
      validate: true,
      poison: false,
      optimize: false,
      capture: "trace.gputrace",
      metalSimulator: true,
      simulatedCuda: true,
      simulatedInstances: true,
      cudaDriver: "./libcuda.so",
    });
  });

  it.each([
    ["MLXTS_DEVICE", "vulkan", "must be one of cpu, metal, cuda, got vulkan"],
    ["MLXTS_THREADS", "0", "must be an integer from 1 to 1024, got 0"],
    ["MLXTS_THREADS", "many", "must be an integer from 1 to 1024, got many"],
    ["MLXTS_DEBUG", "5", "must be an integer from 0 to 4, got 5"],
    ["MLXTS_VALIDATE", "yes", "must be one of 0, 1, got yes"],
    ["MLXTS_FUSE", "off", "must be one of 0, 1, got off"],
  ])("refuses %s=%s", (name, value, rule) => {
    expect(message(() => under({ [name]: value }, environment))).toBe(`environment: \`${name}\` ${rule}`);
  });
});
