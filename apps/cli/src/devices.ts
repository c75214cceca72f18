import { cpuLevels, Device } from "@mlxts/core";
import type { Command } from "commander";

export function addDevices(program: Command): void {
  program
    .command("devices")
    .description("list the devices of this machine")
    .option("--json", "print JSON")
    .action((options: { json?: boolean }) => {
      using device = Device.open("cpu");
      const { kind, name, level, limits, unifiedMemory } = device;
      const devices = [{ kind, name, level, levels: cpuLevels(), unifiedMemory, limits }];
      if (options.json) process.stdout.write(`${JSON.stringify(devices, null, 2)}\n`);
      else
        for (const d of devices)
          process.stdout.write(
            `${d.kind}  ${d.name}, ${d.limits.threads} threads, kernels ${d.level} (runs ${d.levels.join(", ")})\n`,
          );
    });
}
