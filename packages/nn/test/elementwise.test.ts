import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { add, sigmoidGate, swiglu } from "../src/index.ts";

// The neighbors of the tensors are numbers here; in the suites they are NaN, and so is what is computed from them.
describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  it.each([1, 2, 3, 4, 31, 33, 1023, 1024, 1025, 4096, 4099])("%i elements and no more are written", async (size) => {
    const ones = device.tensor("f32", [size + 40], new Float32Array(size + 40).fill(1)).view(20, [size]);
    const outs = [0, 1, 2].map(() => device.tensor("f32", [size + 40]));
    const [a, b, c] = outs.map((out) => out.view(20, [size]));
    const encoder = device.encoder();
    add(encoder, { a: ones, b: ones, out: a });
    swiglu(encoder, { gate: ones, up: ones, out: b });
    sigmoidGate(encoder, { x: ones, gate: ones, out: c });
    await encoder.commit();
    for (const out of outs) {
      const written = (await out.readNumbers()).map((v) => (v === 0 ? 0 : 1));
      expect(written).toEqual(written.map((__, i) => (i >= 20 && i < 20 + size ? 1 : 0)));
    }
  });
});
