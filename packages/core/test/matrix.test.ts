// The matrix headers (core/native/matrix_*.h) at every level against plain loops. All numbers are multiples of 1/8 with
// few digits, so that every dtype holds them, every sum is exact, and results must be equal.
import { beforeAll, describe, expect, it } from "vitest";
import { cpuLevels, type Device, type Dtype } from "../src/index.ts";
import { Random } from "../src/testing/index.ts";
import { testDevice } from "./helpers.ts";
import {
  dotInLoadOrderKernel,
  laneSumsKernel,
  multiplyPanelsKernel,
  multiplyTilesKernel,
  transposeMatrixKernel,
} from "./kernels/matrix.ts";

const UNTOUCHED = -4096;
const random = new Random(11);
const numbers = (count: number) => Float32Array.from({ length: count }, () => (random.below(129) - 64) / 8);
const filled = (count: number) => new Float32Array(count).fill(UNTOUCHED);
const roundUp = (n: number, unit: number) => Math.ceil(n / unit) * unit;
/** Without the sign of zeros. */
const plain = (data: ArrayLike<number>) => Array.from(data, (v) => v + 0);
const at = (data: ArrayLike<number>, i: number) => data[i] as number;

/** Rows of `columns` elements with `padding` up to `stride`. */
function padded(data: Float32Array, columns: number, stride: number, padding: number): Float32Array {
  const out = new Float32Array((data.length / columns) * stride).fill(padding);
  for (let i = 0; i < data.length; i++) out[Math.floor(i / columns) * stride + (i % columns)] = at(data, i);
  return out;
}

/** a [m, k] · b [k, n], as a function of the element. */
const product = (a: Float32Array, b: Float32Array, k: number, n: number) => (row: number, column: number) => {
  let sum = 0;
  for (let i = 0; i < k && column < n; i++) sum += at(a, row * k + i) * at(b, i * n + column);
  return sum;
};

function transposed(b: Float32Array, rows: number, columns: number): Float32Array {
  return Float32Array.from(b, (_, i) => at(b, (i % rows) * columns + Math.floor(i / rows)));
}

async function run(device: Device, kernel: unknown, variant: string, buffers: object, params: object): Promise<void> {
  const encoder = device.encoder();
  encoder.dispatch(kernel as never, { variant, buffers, params, sizes: {} } as never);
  await encoder.commit();
}

describe.each(cpuLevels())("matrix headers on %s", (level) => {
  const device = testDevice({ level });
  const tensor = (dtype: Dtype, data: Float32Array) => device.tensor(dtype as "f32", [data.length], data);
  /** An input, with numbers behind it that are not its own. */
  const input = (dtype: Dtype, data: Float32Array) =>
    tensor(dtype, Float32Array.from([...data, ...new Float32Array(256).fill(5)]));
  let lanes = 0;
  const sums = {
    x: numbers(256),
    bytes: Uint8Array.from({ length: 128 }, () => random.below(256)),
    got: {} as Record<"four" | "all" | "one" | "most" | "dots", ArrayLike<number>>,
  };

  beforeAll(async () => {
    const [four, all, one, most] = Array.from({ length: 4 }, () => device.tensor("f32", [16]));
    const count = device.tensor("u32", [1]);
    const dots = device.tensor("i32", [16]);
    const bytes = device.tensor("u8", [128], sums.bytes);
    const results = { four, all, one, most, dots };
    await run(device, laneSumsKernel, "f32", { x: input("f32", sums.x), bytes, lanes: count, ...results }, {});
    lanes = at(count.readSync(), 0);
    for (const [name, result] of Object.entries(results))
      sums.got[name as "four"] = (result as typeof dots).readSync().subarray(0, lanes);
  });

  it("sum and compare the lanes of one, four and all vectors", () => {
    const rows = Array.from({ length: lanes }, (_, i) => sums.x.subarray(i * 16, i * 16 + lanes));
    const want = rows.map((row) => row.reduce((sum, v) => sum + v, 0));
    for (const name of ["one", "four", "all"] as const)
      expect([name, ...plain(sums.got[name])]).toEqual([name, ...plain(want)]);
    expect(plain(sums.got.most)).toEqual(plain(rows.map((row) => Math.max(...row))));
  });

  it("sum the products of unsigned and signed bytes", () => {
    const signed = new Int8Array(sums.bytes.buffer, 64);
    const want = Array.from({ length: lanes }, (_, lane) =>
      [0, 1, 2, 3].reduce((sum, i) => sum + at(sums.bytes, lane * 4 + i) * at(signed, lane * 4 + i), 2 ** 20),
    );
    expect(Array.from(sums.got.dots)).toEqual(want);
  });

  it.each([
    [1, 1],
    [3, 5],
    [4, 4],
    [7, 16],
    [16, 16],
    [17, 33],
    [48, 31],
    [64, 80],
  ])("transpose a matrix of %i × %i in memory", async (rows, columns) => {
    const [fromStride, toStride] = [columns + 3, rows + 5];
    const from = numbers(rows * fromStride);
    const to = tensor("f32", filled(columns * toStride));
    const params = { rows, columns, fromStride, toStride };
    await run(device, transposeMatrixKernel, "f32", { from: input("f32", from), to }, params);
    const want = filled(columns * toStride);
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) want[c * toStride + r] = at(from, r * fromStride + c);
    expect(plain(to.readSync())).toEqual(plain(want));
  });

  const SHAPES = [
    [1, 1, 1],
    [2, 3, 5],
    [5, 17, 31],
    [3, 12, 4],
    [9, 24, 7],
    [4, 48, 9],
    [6, 64, 32],
    [7, 65, 33],
    [8, 31, 64],
    [12, 127, 2],
    [13, 80, 77],
  ] as const;

  describe.each(["f32", "f16", "bf16", "bf16x2"])("multiply panels of %s", (variant) => {
    it.each(SHAPES)("%i × %i × %i", async (m, n, k) => {
      const [a, b, factors] = [numbers(m * k), numbers(k * n), numbers(m)];
      const two = variant === "bf16x2";
      const left = input(two ? "bf16" : "f32", padded(a, k, two ? roundUp(k, 2) : k, 3));
      const cStride = roundUp(n, 64);
      for (const asTransposed of [0, 1])
        for (const adds of [false, true]) {
          const before = numbers((m + 1) * cStride);
          const c = tensor("f32", before);
          const buffers = {
            a: left,
            b: input(two ? "bf16" : (variant as Dtype), asTransposed ? transposed(b, k, n) : b),
            ...(adds && { factors: input("f32", factors) }),
            panels: tensor("f32", filled(64 * k)),
            c,
          };
          await run(device, multiplyPanelsKernel, variant, buffers, { m, n, k, cStride, transposed: asTransposed });
          const element = product(a, b, k, n);
          const want = before.map((old, i) => {
            const [row, column] = [Math.floor(i / cStride), i % cStride];
            if (row >= m || column >= roundUp(n, lanes)) return old;
            return element(row, column) + (adds ? at(factors, row) * old : 0);
          });
          expect(plain(c.readSync())).toEqual(plain(want));
        }
    });
  });

  describe.each(["f32", "bf16x2"])("multiply strided tiles of %s", (variant) => {
    it.each(SHAPES)("%i × %i × %i", async (m, n, k) => {
      const [a, b, factors] = [numbers(m * k), numbers(k * n), numbers(m)];
      const two = variant === "bf16x2";
      const stride = roundUp(n, 16) + 16;
      for (const triangle of [0, 1]) {
        const [c, written] = [tensor("f32", filled(m * stride)), tensor("f32", new Float32Array(m * stride))];
        const buffers = {
          a: input(two ? "bf16" : "f32", padded(a, k, two ? roundUp(k, 2) : k, 3)),
          b: input("f32", padded(b, n, stride, 0)),
          factors: input("f32", factors),
          rounded: tensor("f32", filled(roundUp(k, 2) * stride)),
          c,
          written,
        };
        await run(device, multiplyTilesKernel, variant, buffers, { m, n, k, stride, triangle });
        const element = product(a, b, k, n);
        const covered = (i: number) => {
          const row = Math.floor(i / stride);
          const end = row - (row % 4) + 4 <= m ? row - (row % 4) + 4 : row + 1;
          return i % stride < roundUp(triangle ? Math.min(n, end) : n, lanes);
        };
        const want = filled(m * stride).map((old, i) =>
          covered(i) ? at(factors, Math.floor(i / stride)) * element(Math.floor(i / stride), i % stride) : old,
        );
        expect(plain(c.readSync())).toEqual(plain(want));
        expect(written.readSync()).toEqual(want.map((_, i) => (covered(i) ? 1 : 0)));
      }
    });
  });

  describe.each(dotInLoadOrderKernel.variants)("dot products in the order of loads, %s", (variant) => {
    it.each([1, 2, 7, 8, 15, 16, 31, 32, 33, 63, 100, 256])("of %i elements", async (n) => {
      const [w, x] = [numbers(n), numbers(n)];
      const [wDtype, xDtype] = variant.split("_") as [Dtype, Dtype];
      const ordered = device.tensor("f32", [roundUp(n, 32)]);
      const back = tensor("f32", filled(n + 8));
      const dot = device.tensor("f32", [1]);
      const buffers = { w: input(wDtype, w), x: input(xDtype, x), ordered, back, dot };
      await run(device, dotInLoadOrderKernel, variant, buffers, { n });
      expect(plain(back.readSync())).toEqual(plain([...x, ...filled(8)]));
      expect(plain(dot.readSync())).toEqual(plain([w.reduce((sum, v, i) => sum + v * at(x, i), 0)]));
      expect(plain(ordered.readSync()).sort()).toEqual(plain([...x, ...new Float32Array(roundUp(n, 32) - n)]).sort());
    });
  });
});
