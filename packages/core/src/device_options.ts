import { wrongKind, wrongValue } from "./errors.ts";
import { checkOptionNames, type OptionNames } from "./options.ts";

/** All kinds of devices there are. */
export const DEVICE_KINDS = Object.freeze(["cpu", "metal", "cuda"] as const);
export type DeviceKind = (typeof DEVICE_KINDS)[number];

export interface DeviceOptions {
  /** CPU threads. Default `MLXTS_THREADS`, else the physical cores. */
  threads?: number;
  /** CPU instruction-set level, one of `cpuLevels()`. Default `MLXTS_CPU_LEVEL`, else the best. */
  level?: string;
  /** In which order dispatches and threadgroups between two barriers are handed out; results must not depend on it. */
  order?: "forward" | "reverse";
  /**
   * Barriers missing in manual mode are errors; ops check what they require of data; kernels of a CPU find NaN in their
   * scratch arrays. Default `MLXTS_VALIDATE`.
   */
  validate?: boolean;
  /** Scratch is filled with NaN before reuse. Default `MLXTS_POISON`. */
  poison?: boolean;
}

const OPTIONS: OptionNames<DeviceOptions> = { threads: true, level: true, order: true, validate: true, poison: true };

/** A copy of the options, each of the right kind. */
export function checkDeviceOptions(options: DeviceOptions): DeviceOptions {
  const op = "Device.open";
  checkOptionNames(op, options, OPTIONS);
  const { threads, level, order, validate, poison } = options;
  if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= 1024))
    throw wrongValue(op, "threads", "be an integer from 1 to 1024", threads);
  if (level !== undefined && typeof level !== "string") throw wrongKind(op, "level", "be a string", level);
  if (order !== undefined && order !== "forward" && order !== "reverse")
    throw wrongValue(op, "order", "be forward or reverse", order);
  for (const [name, value] of Object.entries({ validate, poison }))
    if (value !== undefined && typeof value !== "boolean") throw wrongKind(op, name, "be a boolean", value);
  return {
    ...(threads !== undefined && { threads }),
    ...(level !== undefined && { level }),
    ...(order !== undefined && { order }),
    ...(validate !== undefined && { validate }),
    ...(poison !== undefined && { poison }),
  };
}
