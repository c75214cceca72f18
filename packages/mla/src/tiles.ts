import type { Device, Dtype } from "@mlxts/core";

/** Whether a device multiplies tiles of bf16, and all operands are that. */
export const hasTiles = (device: Device, ...dtypes: readonly Dtype[]) =>
  device.level === "amx" && dtypes.every((dtype) => dtype === "bf16");
