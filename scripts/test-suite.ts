import { cpuLevels, Device } from "@mlxts/core";
import { type Suite, suiteTests } from "@mlxts/core/testing";
import { afterAll, describe, it } from "vitest";

/** Runs a suite under vitest at every instruction-set level of this machine. */
export function testSuite(suite: Suite): void {
  const levels = process.env.MLXTS_CPU_LEVEL ? [process.env.MLXTS_CPU_LEVEL] : cpuLevels();
  for (const [index, level] of levels.entries())
    describe(`${suite.op.op.name} on cpu ${level}`, () => {
      const device = Device.open("cpu", { level });
      const other = Device.open("cpu", { level, threads: 1, order: "reverse" });
      afterAll(() => {
        device.dispose();
        other.dispose();
      });
      // Mutants are judged by the reference alone: once is enough.
      const cases = index === 0 ? suite : { ...suite, mutants: {} };
      for (const test of suiteTests(cases, () => ({ device, other }))) it(test.name, test.run);
    });
}
