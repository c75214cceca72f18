import { cpuLevels, Device, type DeviceOptions } from "@mlxts/core";
import { firstRing } from "./rings.ts";

/** The instruction-set levels that tests run on: all of this machine, in the first ring of the tests the best one. */
export function testedLevels(): readonly string[] {
  const level = process.env.MLXTS_CPU_LEVEL;
  return level ? [level] : cpuLevels().slice(0, firstRing ? 1 : undefined);
}

/** The devices of tests that are not suites: the one of `MLXTS_DEVICE=metal`, or every instruction-set level. */
export const DEVICES: readonly (readonly [name: string, open: () => Device])[] =
  process.env.MLXTS_DEVICE === "metal"
    ? [["metal", () => Device.open("metal")]]
    : testedLevels().map((level) => [`cpu ${level}`, () => Device.open("cpu", { level })] as const);

/** A device of the Metal simulator with variables of its own, named without `MLXTS_METAL_SIM_`. */
export function openSimulated(variables: Record<string, string>, options?: DeviceOptions): Device {
  const names = Object.entries(variables).map(([name, value]) => [`MLXTS_METAL_SIM_${name}`, value] as const);
  for (const [name, value] of names) process.env[name] = value;
  try {
    return Device.open("metal", options);
  } finally {
    for (const [name] of names) delete process.env[name];
  }
}

type Opener = readonly [name: string, open: (options?: DeviceOptions) => Device];
const cpu = (name: string, order: DeviceOptions): Opener => [
  name,
  (options) => Device.open("cpu", { ...options, ...order }),
];

/** Devices that run the threadgroups of a dispatch in different orders, and several at a time. */
export const ORDERS: readonly Opener[] =
  process.env.MLXTS_DEVICE !== "metal"
    ? [
        cpu("cpu, one thread", { threads: 1 }),
        cpu("cpu, one thread, from the last", { threads: 1, order: "reverse" }),
        cpu("cpu, four threads", { threads: 4 }),
        cpu("cpu, four threads, from the last", { threads: 4, order: "reverse" }),
      ]
    : process.env.MLXTS_METAL_SIM
      ? ["forward", "reverse", "random:1", "random:2", "random:3"].map(
          (schedule) => [`metal, ${schedule}`, (options) => openSimulated({ SCHEDULE: schedule }, options)] as const,
        )
      : [["metal", (options) => Device.open("metal", options)]];
