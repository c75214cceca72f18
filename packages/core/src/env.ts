// The one file that reads the environment. The README's table names these variables.

import { DEVICE_KINDS } from "./device_options.ts";
import { wrongValue } from "./errors.ts";

function choice<T extends string>(name: string, values: readonly T[]): T | undefined {
  const value = process.env[name];
  if (value === undefined || value === "") return undefined;
  if (!values.includes(value as T)) throw wrongValue("environment", name, `be one of ${values.join(", ")}`, value);
  return value as T;
}

function integer(name: string, min: number, max: number): number | undefined {
  const text = process.env[name];
  if (text === undefined || text === "") return undefined;
  const value = Number(text);
  if (!Number.isInteger(value) || value < min || value > max)
    throw wrongValue("environment", name, `be an integer from ${min} to ${max}`, text);
  return value;
}

const flag = (name: string) => choice(name, ["0", "1"]) === "1";

/** `false`: off; `true`: the simulator that was built here; else the path of another build of the addon. */
function simulator(): boolean | string {
  const value = process.env.MLXTS_METAL_SIM;
  return value?.endsWith(".node") ? value : flag("MLXTS_METAL_SIM");
}

/** Settings from `MLXTS_*`, read anew at each call. */
export function environment() {
  return {
    device: choice("MLXTS_DEVICE", DEVICE_KINDS),
    threads: integer("MLXTS_THREADS", 1, 1024),
    cpuLevel: process.env.MLXTS_CPU_LEVEL || undefined,
    debug: integer("MLXTS_DEBUG", 0, 4) ?? 0,
    validate: flag("MLXTS_VALIDATE"),
    poison: flag("MLXTS_POISON"),
    optimize: choice("MLXTS_FUSE", ["0", "1"]) !== "0",
    capture: process.env.MLXTS_CAPTURE || undefined,
    metalSimulator: simulator(),
    /** The simulator runs kernels as their CUDA translations. */
    simulatedCuda: choice("MLXTS_METAL_SIM_TRANSLATION", ["cuda"]) === "cuda",
    /** The simulator compiles an instance of a kernel when it is first run, not all of a file together. */
    simulatedInstances: flag("MLXTS_METAL_SIM_INSTANCES"),
    cudaDriver: process.env.MLXTS_CUDA_DRIVER || undefined,
  };
}
