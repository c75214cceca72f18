import { Device, FLOATS } from "@mlxts/core";
import { expect, it } from "vitest";
import { matmul } from "../src/index.ts";

const [M, N, K] = [20, 40, 70];

// Products that are made of parts of numbers must not make NaN of what is infinite.
it.each(FLOATS.flatMap((x) => FLOATS.map((weight) => [x, weight] as const)))(
  "infinite numbers of %s and of %s give infinite sums",
  async (xType, weightType) => {
    const device = Device.open();
    for (const infinite of ["x", "weight"] as const) {
      const x = new Float32Array(M * K).fill(1.5);
      const weight = new Float32Array(N * K).fill(0.25);
      const [row, column] = [M - 1, N - 1];
      if (infinite === "x") x[row * K + 7] = Number.NEGATIVE_INFINITY;
      else weight[column * K + 69] = Number.POSITIVE_INFINITY;
      const encoder = device.encoder();
      const tensors = { x: device.tensor(xType, [M, K], x), weight: device.tensor(weightType, [N, K], weight) };
      const out = matmul(encoder, tensors, { outDtype: "f32" });
      await encoder.commit();
      const values = (await out.read()) as Float32Array;
      for (let i = 0; i < M; i++)
        for (let j = 0; j < N; j++) {
          const sum = 1.5 * 0.25 * K;
          const other = infinite === "x" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
          expect(values[i * N + j]).toBe((infinite === "x" ? i === row : j === column) ? other : sum);
        }
    }
    device.dispose();
  },
);
