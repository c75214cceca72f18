import { cpuLevels, Device, type MlxtsError } from "@mlxts/core";
import { type Suite, suiteTests } from "@mlxts/core/testing";
import { afterAll, describe, it } from "vitest";
import { clangMissing } from "./clang.ts";
import { openSimulated } from "./devices.ts";

function suiteOn(name: string, suite: Suite, open: () => Device[]): void {
  describe(name, () => {
    const [device, ...others] = open() as [Device, ...Device[]];
    afterAll(() => {
      for (const each of [device, ...others]) each.dispose();
    });
    for (const test of suiteTests(suite, () => ({ device, others }))) it(test.name, test.run);
  });
}

/** Four schedules of the Metal simulator, and its check mode, which fails what it finds; on a Mac two devices. */
const METAL: Record<string, string>[] = process.env.MLXTS_METAL_SIM_COVERAGE
  ? [{}]
  : process.env.MLXTS_METAL_SIM
    ? [...["forward", "reverse", "random:1", "random:2"].map((schedule) => ({ SCHEDULE: schedule })), { CHECK: "1" }]
    : [{}, {}];

const openMetal = (): Device[] => METAL.map((variables) => openSimulated(variables));

/** Why there is no Metal device here. */
function metalMissing(): string | undefined {
  try {
    Device.open("metal").dispose();
    return process.env.MLXTS_METAL_SIM ? clangMissing() : undefined;
  } catch (error) {
    return (error as MlxtsError).message;
  }
}

/** Runs a suite under vitest on the device of `MLXTS_DEVICE`: `metal`, or every instruction-set level of this machine. */
export function testSuite(suite: Suite): void {
  const op = suite.op.op.name;
  // Mutants are judged by the reference alone: once is enough.
  const cases = { ...suite, mutants: {} };
  if (process.env.MLXTS_DEVICE === "metal") {
    const missing = metalMissing();
    if (missing) describe.skip(`${op} on metal (skipped: ${missing})`, () => it("runs", () => {}));
    else suiteOn(`${op} on metal`, cases, openMetal);
    return;
  }
  const levels = process.env.MLXTS_CPU_LEVEL ? [process.env.MLXTS_CPU_LEVEL] : cpuLevels();
  for (const [index, level] of levels.entries())
    suiteOn(`${op} on cpu ${level}`, index === 0 ? suite : cases, () => [
      Device.open("cpu", { level }),
      // This one also guards each scratch array.
      Device.open("cpu", { level, threads: 1, order: "reverse", validate: true }),
    ]);
}
