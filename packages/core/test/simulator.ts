// Tests on the simulated Metal device. Where it has not been built they are skipped, with the reason.

import { clangMissing } from "@mlxts/test-kit/clang";
import { afterEach, describe, it } from "vitest";
import { Device, type DeviceOptions } from "../src/index.ts";
import { simulatorMissing } from "../src/native.ts";

// Set before the first device is opened: the addon is chosen once.
process.env.MLXTS_METAL_SIM ||= "1";

/** Why the tests are skipped. */
export const missing =
  process.platform === "linux"
    ? (simulatorMissing()?.replace(/: looked for .*? — /, " — ") ?? clangMissing())
    : "not on this platform";

/** A suite that needs the simulator. Where it is missing, `tests` is not called: it may open devices. */
export function describeSimulated(name: string, tests: () => void): void {
  if (missing !== undefined) {
    describe.skip(`${name} (skipped: ${missing})`, () => it("runs", () => {}));
    return;
  }
  describe(name, () => {
    afterEach(() => set({}));
    tests();
  });
}

const VARIABLES = {
  fault: "MLXTS_METAL_SIM_FAULT",
  schedule: "MLXTS_METAL_SIM_SCHEDULE",
  check: "MLXTS_METAL_SIM_CHECK",
  capture: "MLXTS_CAPTURE",
} as const;

/** Sets the simulator's variables until the test ends, and unsets the others. */
export function set(values: Partial<Record<keyof typeof VARIABLES, string>>): void {
  for (const [key, variable] of Object.entries(VARIABLES)) {
    const value = values[key as keyof typeof VARIABLES];
    if (value === undefined) delete process.env[variable];
    else process.env[variable] = value;
  }
}

export const openMetal = (options?: DeviceOptions): Device => Device.open("metal", options);
