import { cpuLevels, DEVICE_KINDS, Device, type DeviceKind, MlxtsError } from "@mlxts/core";
import { command } from "./contract.ts";
import { flag } from "./options.ts";

/** A device of this kind as plain data, or why it cannot be opened. */
function describe(kind: DeviceKind) {
  try {
    using device = Device.open(kind);
    const { name, level, limits, unifiedMemory } = device;
    return {
      kind,
      available: true,
      name,
      level,
      ...(kind === "cpu" && { levels: cpuLevels() }),
      unifiedMemory,
      limits,
    };
  } catch (error) {
    if (error instanceof MlxtsError) return { kind, available: false, reason: error.message };
    throw error;
  }
}

export const devices = command({
  name: "devices",
  summary: "List the devices of this machine, and why others are missing.",
  arguments: {},
  options: { json: flag("print JSON") },
  run({ json }) {
    const all = DEVICE_KINDS.map(describe);
    if (json) {
      process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
      return;
    }
    for (const device of all) {
      const levels = "levels" in device ? `, kernels ${device.level} (runs ${device.levels?.join(", ")})` : "";
      const text = "limits" in device ? `${device.name}, ${device.limits?.threads} threads${levels}` : device.reason;
      process.stdout.write(`${device.kind.padEnd(5)}  ${text}\n`);
    }
  },
});
