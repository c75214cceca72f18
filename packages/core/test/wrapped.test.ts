import { describe, expect, it } from "vitest";
import { runChild } from "./run_child.ts";
import { describeSimulated } from "./simulator.ts";
import { pinned } from "./wrappable.ts";

const refused =
  "refused: device.wrap: `memory` must lie in a SharedArrayBuffer or in a buffer's own array on this version of " +
  "Node.js, got an ArrayBuffer that can be transferred away — copy it with device.bufferFrom";
const plain = pinned ? "held" : refused;
const transferable = "transfer" in ArrayBuffer.prototype;

const { WebAssembly } = globalThis as unknown as { WebAssembly: { Memory: { prototype: object } } };
const resizableWasm = "toResizableBuffer" in WebAssembly.Memory.prototype;

const LENT: [scenario: string, end: string][] = [
  ["otherDevice", "held"],
  ["sameDevice", "held"],
  ["part", "held"],
  ["chain", "held"],
  ["lentAndTransferred", transferable ? plain : "absent"],
  ["lentAgain", transferable ? "held" : "absent"],
  ["worker", "held"],
];
const PAGES: [scenario: string, end: string][] = [
  ["wasmGrow", "held"],
  ["wasmFixed", resizableWasm ? "held" : "absent"],
  ["wasmShared", "held"],
];
const ARRAYS: [scenario: string, end: string][] = [
  ["transfer", plain],
  ["shrink", plain],
  ["grow", plain],
  ["empty", plain],
  ["fixedLength", plain],
  ["clone", plain],
  ["post", plain],
  ["lost", plain],
  ["otherRealm", plain],
  ["lies", "refused"],
  ["growingShared", "held"],
  ["pool", plain],
];

async function end(scenario: string, env: Record<string, string>): Promise<object> {
  const { code, signal, stdout, stderr } = await runChild("wrapped", [scenario], env);
  return { code, signal, stdout, stderr: code === 0 ? "" : stderr };
}

describe("memory that is taken away while the device works on it", () => {
  it.each([...LENT, ...PAGES, ...ARRAYS])("%s", async (scenario, stdout) => {
    const expected = { code: 0, signal: null, stdout, stderr: "" };
    expect(await end(scenario, { MLXTS_DEVICE: "cpu" })).toEqual(expected);
  });
});

describeSimulated("memory that is taken away while the Metal device works on it", () => {
  const env = {
    MLXTS_DEVICE: "metal",
    MLXTS_METAL_SIM: process.env.MLXTS_METAL_SIM ?? "1",
    MLXTS_METAL_SIM_FAULT: "delay:20",
  };
  it.each([...LENT, ...PAGES])("%s", async (scenario, stdout) => {
    expect(await end(scenario, env)).toEqual({ code: 0, signal: null, stdout, stderr: "" });
  });
});
