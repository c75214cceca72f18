import { Device, type MlxtsError } from "@mlxts/core";
import { type Suite, suiteTests } from "@mlxts/core/testing";
import { afterAll, describe, it } from "vitest";
import { clangMissing } from "./clang.ts";
import { openSimulated, testedLevels } from "./devices.ts";
import { firstRing } from "./rings.ts";

/** The devices of one kind, or of one instruction-set level: the bits of all are equal. */
interface Group {
  name: string;
  open: () => Device[];
}

/** Each case on all groups of devices, one after another, so that its reference is computed once. */
function suiteOn(name: string, suite: Suite, groups: readonly Group[], keep: boolean): void {
  describe(name, () => {
    // Mutants are judged by the reference alone: once is enough, in the second ring.
    const cases = { ...suite, mutants: {} };
    const first = firstRing ? cases : suite;
    const tests = groups.map((group, index) => {
      const [device, ...others] = group.open() as [Device, ...Device[]];
      afterAll(() => {
        for (const each of [device, ...others]) each.dispose();
      });
      return suiteTests(index === 0 ? first : cases, () => ({ device, others }), { keep });
    });
    for (const [index] of (tests[0] ?? []).entries())
      for (const [at, { name }] of groups.entries()) {
        const test = tests[at]?.[index];
        if (test) it(tests[1]?.[index] ? `${name}: ${test.name}` : test.name, test.run);
      }
  });
}

/** Four schedules of the Metal simulator, the first in its check mode, which fails what it finds; on a Mac two devices. */
const METAL: Record<string, string>[] = process.env.MLXTS_METAL_SIM_COVERAGE
  ? [{}]
  : process.env.MLXTS_METAL_SIM
    ? [{ CHECK: "1" }, ...["reverse", "random:1", "random:2"].map((schedule) => ({ SCHEDULE: schedule }))]
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

/**
 * Runs a suite under vitest on the device of `MLXTS_DEVICE`: `metal`, or every instruction-set level of this machine.
 * `keep`: its package publishes it, so that what its reference gives is kept for other processes.
 */
export function testSuite(suite: Suite, { keep = false } = {}): void {
  const op = suite.op.op.name;
  if (process.env.MLXTS_DEVICE === "metal") {
    const missing = metalMissing();
    if (missing) describe.skip(`${op} on metal (skipped: ${missing})`, () => it("runs", () => {}));
    else suiteOn(`${op} on metal`, { ...suite, mutants: {} }, [{ name: "metal", open: openMetal }], keep);
    return;
  }
  const groups = testedLevels().map((level) => ({
    name: level,
    open: () => [
      Device.open("cpu", { level }),
      // This one also guards each scratch array.
      Device.open("cpu", { level, threads: 1, order: "reverse", validate: true }),
    ],
  }));
  suiteOn(`${op} on cpu`, suite, groups, keep);
}
