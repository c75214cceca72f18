import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { afterAll } from "vitest";
import { Device, type DeviceOptions } from "../src/index.ts";

/** A device for the tests of a file. */
export function testDevice(options?: DeviceOptions): Device {
  const device = Device.open("cpu", options);
  afterAll(() => device.dispose());
  return device;
}

/** What a call gives when these are the only `MLXTS_*` variables. */
export function under<T>(variables: Record<string, string>, call: () => T): T {
  const before = { ...process.env };
  for (const name of Object.keys(process.env)) if (name.startsWith("MLXTS_")) delete process.env[name];
  Object.assign(process.env, variables);
  try {
    return call();
  } finally {
    process.env = before;
  }
}

/** A folder for the tests of a file. */
export const testFolder = () => temporaryFolder("core");

export interface Caught {
  name: string;
  message: string;
  code: string;
  details?: Record<string, unknown>;
}

/** What a call throws. */
export function caught(call: () => unknown): Error & Caught {
  try {
    call();
  } catch (error) {
    return error as Error & Caught;
  }
  throw new Error("nothing was thrown");
}

/** What a promise rejects with. */
export async function rejected(promise: PromiseLike<unknown>): Promise<Error & Caught> {
  try {
    await promise;
  } catch (error) {
    return error as Error & Caught;
  }
  throw new Error("nothing was rejected");
}

export const message = (call: () => unknown): string => caught(call).message;
