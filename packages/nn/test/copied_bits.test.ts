import { Device, type FloatDtype } from "@mlxts/core";
import { expect, it } from "vitest";
import { embedding, slice } from "../src/index.ts";

// Every bit pattern of 16 bits, NaNs with payloads and infinities too, must come through a copy unchanged.
it.each(["f16", "bf16", "f32"] as const)("copies keep all bits of %s", async (dtype: FloatDtype) => {
  const device = Device.open();
  const bits = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const raw = dtype === "f32" ? Float32Array.from(bits, () => 0) : bits;
  // f32: the pattern in the upper half of each word, something else in the lower.
  if (raw instanceof Float32Array)
    new Uint32Array(raw.buffer).set(Uint32Array.from(bits, (b) => (b << 16) | (b ^ 0x5a5a)));
  const weight = device.tensor(dtype, [64, 1024], raw);
  const encoder = device.encoder();
  const ids = device.tensor(
    "u32",
    [64],
    Uint32Array.from({ length: 64 }, (_, i) => i),
  );
  const rows = embedding(encoder, { ids, weight });
  const columns = slice(encoder, { x: weight }, { begin: 0, size: 1024 });
  await encoder.commit();
  const expected = new Uint8Array(raw.buffer);
  for (const out of [rows, columns])
    expect(Buffer.compare(new Uint8Array((await out.read()).buffer), expected)).toBe(0);
  device.dispose();
});
