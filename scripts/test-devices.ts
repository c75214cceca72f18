import { cpuLevels, Device } from "@mlxts/core";

/** The devices of tests that are not suites: the one of `MLXTS_DEVICE=metal`, or every instruction-set level. */
export const DEVICES: readonly (readonly [name: string, open: () => Device])[] =
  process.env.MLXTS_DEVICE === "metal"
    ? [["metal", () => Device.open("metal")]]
    : cpuLevels().map((level) => [`cpu ${level}`, () => Device.open("cpu", { level })] as const);
