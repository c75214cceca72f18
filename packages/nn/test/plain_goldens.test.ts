import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { rope } from "../src/index.ts";

const hf = goldens("goldens/hf_ops.safetensors");
const stored = (name: string) => ({ shape: hf.tensor(name).shape, numbers: hf.numbers(name) });

/** [b, h, t, d] as [b, t, h, d]. */
function tokensFirst({ shape, numbers }: ReturnType<typeof stored>) {
  const [b, h, t, d] = shape as [number, number, number, number];
  const out = new Float64Array(numbers.length);
  for (let i = 0; i < b; i++)
    for (let head = 0; head < h; head++)
      for (let token = 0; token < t; token++) {
        const from = ((i * h + head) * t + token) * d;
        out.set(numbers.subarray(from, from + d), ((i * t + token) * h + head) * d);
      }
  return { shape: [b, t, h, d], numbers: out };
}

describe.each(DEVICES)("Hugging Face rotary embedding, 16 of 64 elements rotated, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  for (const start of ["from0", "from4000"])
    for (const name of ["q", "k"])
      it(`${name} ${start}`, async () => {
        const x = tokensFirst(stored(`rope.${name}_bhtd`));
        const positions = stored(`rope.${start}.positions`);
        const frequencies = stored("rope.inv_freq");
        const encoder = device.encoder();
        const out = rope(encoder, {
          x: device.tensor("f32", x.shape, x.numbers),
          positions: device.tensor("i32", [1, positions.numbers.length], positions.numbers),
          inverseFrequencies: device.tensor("f32", frequencies.shape, frequencies.numbers),
        });
        await encoder.commit();
        const golden = tokensFirst(stored(`rope.${start}.${name}_out_bhtd`));
        // The original rounds angles to f32: at position 4000 that is 1e-4 of a radian per unit of frequency.
        const bar = start === "from0" ? 2e-7 : 5e-5;
        expect(compare(await out.readNumbers(), golden.numbers).ratio).toBeLessThan(bar);
      });
});
