import { type Device, wrongKind } from "@mlxts/core";

/** Refuses a value that is not a device. `instanceof` would refuse devices of some other copies of the library. */
export function checkDevice(op: string, device: Device): void {
  if (typeof (device as Partial<Device> | null | undefined)?.mapFile !== "function")
    throw wrongKind(op, "device", "be a Device", device);
}
