import { describe, expect, it } from "vitest";
import { runChild } from "./run_child.ts";
import { describeSimulated } from "./simulator.ts";

async function attack(seed: number, env: Record<string, string>): Promise<void> {
  const { code, signal, stdout, stderr } = await runChild("memory_attack", [String(seed), "400"], env);
  expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
  // Of 400 steps, four in twenty-one commit or replay.
  expect(Number.parseInt(stdout, 10)).toBeGreaterThan(20);
}

describe("random programs over wrapped memory", () => {
  it.each([1, 2, 3, 4])("end well, seed %i", (seed) => attack(seed, { MLXTS_DEVICE: "cpu" }));
});

describeSimulated("random programs over wrapped memory of the Metal device", () => {
  const env = {
    MLXTS_DEVICE: "metal",
    MLXTS_METAL_SIM: process.env.MLXTS_METAL_SIM ?? "1",
    MLXTS_METAL_SIM_FAULT: "delay:5",
  };
  it.each([1, 2])("end well, seed %i", (seed) => attack(seed, env));
});
