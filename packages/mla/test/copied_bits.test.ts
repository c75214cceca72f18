import { Device } from "@mlxts/core";
import { expect, it } from "vitest";
import { mlaSplit } from "../src/index.ts";

// Every bit pattern of 16 bits, NaNs with payloads and infinities too, must come through a copy unchanged.
it.each(["f16", "bf16"] as const)("mlaSplit keeps all bits of %s", async (dtype) => {
  using device = Device.open();
  const bits = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const q = device.tensor(dtype, [1, 64, 32, 32], bits);
  const kv = device.tensor(dtype, [1, 64, 1024], bits);
  const encoder = device.encoder();
  const { qNope, qPe, latent, kPe } = mlaSplit(encoder, { q, kv }, { rope: 8 });
  await encoder.commit();
  const columns = (dim: number, begin: number, end: number) => bits.filter((_, i) => i % dim >= begin && i % dim < end);
  expect(await qNope.read()).toEqual(columns(32, 0, 24));
  expect(await qPe.read()).toEqual(columns(32, 24, 32));
  expect(await latent.read()).toEqual(columns(1024, 0, 1016));
  expect(await kPe.read()).toEqual(columns(1024, 1016, 1024));
});
