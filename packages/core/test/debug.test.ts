import { describe, expect, it } from "vitest";
import { runChild } from "./run_child.ts";

const lines = async (debug: number) => {
  const { code, stderr } = await runChild("debugged", [], { MLXTS_DEBUG: String(debug), MLXTS_POISON: "" });
  expect(code).toBe(0);
  return stderr.split("\n").filter((line) => line !== "");
};

describe("MLXTS_DEBUG", () => {
  it("is silent at 0, and names devices at 1", async () => {
    expect(await lines(0)).toEqual([]);
    const [device, ...rest] = await lines(1);
    expect(device).toMatch(/^mlxts device cpu: .+, level \w+, 2 threads$/);
    expect(rest).toEqual([]);
  });

  it("gives a line for each dispatch at 2, with shapes and parameters at 3", async () => {
    const speed = String.raw`^mlxts +[\d.]+ µs +[\d.]+ GB/s  increment/increment_u32  4×1×1 threadgroups`;
    const two = await lines(2);
    expect(two).toHaveLength(3);
    for (const line of two.slice(1)) expect(line).toMatch(new RegExp(`${speed}$`));
    const three = await lines(3);
    expect(three[1]).toMatch(new RegExp(`${speed}, x u32\\[64\\], out u32\\[64\\], perGroup 16, microseconds 0$`));
  });
});
