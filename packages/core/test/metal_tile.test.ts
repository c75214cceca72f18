// The tiles of native/metal_tile.h on the simulated Metal device, against plain loops. Numbers are small multiples of 1/8,
// so that every dtype holds them, every sum is exact, and results must be equal.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Device, type Dtype, FLOATS } from "../src/index.ts";
import { metalTexts } from "../src/metal_source.ts";
import { Random } from "../src/testing/index.ts";
import { MIXED, mixedProductKernel, productKernel, ROLES, tileRolesKernel } from "./kernels/tile.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

const HEADER = new URL("../native/metal_tile.h", import.meta.url).pathname;
const PRODUCT = new URL("native/product.metal", import.meta.url).pathname;
const TILE_ROLES = new URL("native/tile_roles.metal", import.meta.url).pathname;
/** What a fault is found by: not by an error of the compiler. */
const FOUND = /to deeply equal|: race: |: uninitialized: |: out of bounds: /;

/** The text without its other instances, which is compiled sooner. */
const onlyInstance = (text: string, symbol: string) => `${text}\n#pragma metal_sim_only ${symbol}\n`;
const random = new Random(11);
const numbers = (count: number, most = 8) =>
  Float32Array.from({ length: count }, () => (random.below(2 * most + 1) - most) / 8);
const at = (data: ArrayLike<number>, i: number) => data[i] as number;
const plain = (data: ArrayLike<number>) => Array.from(data, (v) => v + 0);

/** a [m, k] · b [k, n], each sum in f64. */
function product(a: ArrayLike<number>, b: ArrayLike<number>, m: number, n: number, k: number): Float64Array {
  const out = new Float64Array(m * n);
  for (let row = 0; row < m; row++)
    for (let column = 0; column < n; column++)
      for (let i = 0; i < k; i++)
        out[row * n + column] = at(out, row * n + column) + at(a, row * k + i) * at(b, i * n + column);
  return out;
}
const transposed = (data: Float32Array, rows: number, columns: number) =>
  Float32Array.from(data, (_, i) => at(data, (i % rows) * columns + Math.floor(i / rows)));

/** The product of the README's kernel, rounded to `dtype`. */
async function multiply(device: Device, dtype: Dtype, m: number, n: number, k: number) {
  const [a, b] = [numbers(m * k, 2), numbers(k * n, 2)];
  const tensor = (shape: number[], data: Float32Array) => device.tensor(dtype as "f32", shape, data);
  const out = device.tensor(dtype as "f32", [m, n]);
  const encoder = device.encoder();
  const buffers = { a: tensor([m, k], a), b: tensor([k, n], b), out };
  encoder.dispatch(productKernel, { variant: dtype, buffers, params: { m, n, k }, sizes: { m, n } });
  await encoder.commit();
  const expected = tensor([m, n], Float32Array.from(product(a, b, m, n, k)));
  return { got: plain(await out.read()), expected: plain(await expected.read()) };
}

const { m, n, k, last } = ROLES;

/** What tile_roles computes, and what it should. */
async function roles(device: Device, dtype: Dtype, stored: "" | "_transposed") {
  const [a, b, c] = [numbers(m * k, 2), numbers(k * n, 2), numbers(n * last, 2)];
  const factors = Float32Array.from({ length: m }, () => 2 ** -random.below(3));
  const tensor = (data: Float32Array) => device.tensor(dtype as "f32", [data.length], data);
  const empty = (...shape: number[]) => device.tensor("f32", shape);
  const buffers = {
    a: tensor(stored ? transposed(a, m, k) : a),
    b: tensor(stored ? transposed(b, k, n) : b),
    c: tensor(c),
    factors: device.tensor("f32", [m], factors),
    sums: empty(m, n),
    rows: empty(4, m),
    out: empty(m, last),
  };
  const encoder = device.encoder();
  encoder.dispatch(tileRolesKernel, { variant: `${dtype}${stored}`, buffers, params: {}, sizes: {} });
  await encoder.commit();
  const sums = product(a, b, m, n, k).map((v, i) => v * at(factors, Math.floor(i / n)));
  const rounded = await tensor(Float32Array.from(sums)).readNumbers();
  const rowsOf = (data: ArrayLike<number>, size: number) =>
    Array.from({ length: m }, (_, r) => Array.from(data).slice(r * size, (r + 1) * size));
  const sumOf = (row: number[]) => row.reduce((x, y) => x + y);
  const ofRows = rowsOf(sums, n);
  const expected = {
    sums: plain(sums),
    rows: plain([
      ...ofRows.map((row) => Math.max(...row)),
      ...ofRows.map(sumOf),
      ...rowsOf(a, k).map(sumOf),
      ...rowsOf(a, k).map((row) => sumOf(row.map((v, i) => v * (1 + (i % 2))))),
    ]),
    out: plain(
      product(
        rounded.map((v, i) => v * at(factors, Math.floor(i / n))),
        c.map((v, i) => v * (1 + ((Math.floor(i / last) + Math.floor((i % last) / 4)) % 2))),
        m,
        last,
        n,
      ),
    ),
  };
  const got = {
    sums: plain(await buffers.sums.read()),
    rows: plain(await buffers.rows.read()),
    out: plain(await buffers.out.read()),
  };
  return { got, expected };
}

/** The product of operands in two dtypes, of which one is f32 and has digits that the other does not hold. */
async function mixed(device: Device, left: Dtype, right: Dtype, transpose: boolean) {
  const { m, n, k } = MIXED;
  const operand = (dtype: Dtype, count: number) =>
    numbers(count, 2).map((v) => (dtype === "f32" ? v * (1 + 2 ** -11) : v));
  const [a, b] = [operand(left, m * k), operand(right, k * n)];
  const tensor = (dtype: Dtype, data: Float32Array) => device.tensor(dtype as "f32", [data.length], data);
  const out = device.tensor("f32", [m, n]);
  const buffers = {
    a: tensor(left, transpose ? transposed(a, m, k) : a),
    b: tensor(right, transpose ? transposed(b, k, n) : b),
    out,
  };
  const encoder = device.encoder();
  const variant = `${left}_${right}` as "f16_f32";
  encoder.dispatch(mixedProductKernel, { variant, buffers, params: { transposed: Number(transpose) }, sizes: {} });
  await encoder.commit();
  return { got: plain(await out.read()), expected: plain(product(a, b, m, n, k)) };
}

describeSimulated("tiles of a simdgroup", () => {
  describe.each(FLOATS)("%s", (dtype) => {
    it.each(["", "_transposed"] as const)("have each role: operands%s", async (stored) => {
      set({ check: "1" });
      using device = openMetal();
      const { got, expected } = await roles(device, dtype, stored);
      expect(got).toEqual(expected);
    });

    it.each([
      [1, 1, 1],
      [64, 64, 16],
      [65, 63, 17],
      [30, 130, 50],
      [129, 6, 3],
    ])("multiply [%i, k] by [k, %i], k = %i", async (rows, columns, depth) => {
      for (const schedule of ["forward", "reverse", "random:7"]) {
        set({ check: "1", schedule });
        using device = openMetal();
        const { got, expected } = await multiply(device, dtype, rows, columns, depth);
        expect(got).toEqual(expected);
      }
    });
  });

  it.each([
    ["f16", "f32"],
    ["f32", "f16"],
    ["bf16", "f32"],
    ["f32", "bf16"],
  ] as const)("multiply %s by %s with all digits", async (left, right) => {
    set({ check: "1" });
    using device = openMetal();
    for (const transpose of [false, true]) {
      const { got, expected } = await mixed(device, left, right, transpose);
      expect(got).toEqual(expected);
    }
  });

  // Each fault must be seen by a test above. They are faults of Metal's header, which CUDA translations do not take.
  it.skipIf(process.env.MLXTS_METAL_SIM_TRANSLATION === "cuda").each([
    [
      "a lane's row",
      HEADER,
      "blocks[r][c].thread_elements() *= factors[r]",
      "blocks[r][c].thread_elements() *= factors[r ^ 1]",
    ],
    ["a lane's row of an operand", HEADER, "float(element) * factors[r]", "float(element) * factors[r ^ 1]"],
    ["an element of an operand", HEADER, "[k].thread_elements()[e]);\n", "[k].thread_elements()[0]);\n"],
    ["an element of a sum again", HEADER, "[c].thread_elements()[e]);\n", "[c].thread_elements()[1 - e]);\n"],
    ["a changed piece", HEADER, "change(first + i * kStep, column", "change(first + i * kStep + 1, column"],
    ["an operand's rows", HEADER, "load, r* stride + c, false", "load, c* stride + r, false"],
    ["a piece of a copy", HEADER, "first = index / kPerRow", "first = index / kPerRow ^ 1"],
    ["the last elements of a row", HEADER, "left > 1 ? from[1]", "left > 2 ? from[1]"],
    ["rows beyond the matrix", HEADER, "rows = metal::min(rows, Rows)", "rows = Rows"],
    ["lanes that share a row", HEADER, "simd_shuffle_xor(value, kRowLanes)", "simd_shuffle_xor(value, 4)"],
    ["a lane's place in a tile", HEADER, "to += matrix_row(lane) * stride", "to += matrix_column(lane) * stride"],
    [
      "the sums' way to a tile",
      HEADER,
      "E(sum.at(r, c, 0)), E(sum.at(r, c, 1))",
      "E(sum.at(r, c, 1)), E(sum.at(r, c, 0))",
    ],
    ["the sums' way from a tile", HEADER, "= float(two[e]);", "= float(two[0]);"],
    ["a tile's way back", HEADER, "const uint row = (first + index) / kPerRow,", "const uint row = first / kPerRow,"],
    ["the part of a left operand", HEADER, "left.blocks[r][2 * k + c]", "left.blocks[r][k + c]"],
    [
      "rows of one dtype",
      HEADER,
      "(offset) * 8, stride,",
      "(offset) * 8, stride + (metal::is_same_v<E, bfloat> ? 8 : 0),",
    ],
    ["elements of one dtype", HEADER, "E(sum.at(r, c, e))", "E(sum.at(r, c, metal::is_same_v<E, bfloat> ? 1 - e : e))"],
    ["sums that are not cleared", PRODUCT, "fill(sum, 0.0f)", "fill(sum, sum.at(0, 0, 0) + 1.0f)"],
    ["order: a copy that is not finished", TILE_ROLES, "copy.finish(to, lane)", ""],
    ["order: a tile that is still read takes a copy", PRODUCT, "a_copy.start(", "a_copy.start(a_tile, "],
    ["order: a tile written while it is read", PRODUCT, /threadgroup_barrier.*\/\/ the products .*/, ""],
    ["order: a tile read before it is there", PRODUCT, /threadgroup_barrier[^/]*;\n(?= *TileLeft)/, ""],
  ])("are tested: wrong %s", async (what, file, right, wrong) => {
    const dtype = what.endsWith("of one dtype") ? "bf16" : "f32";
    const text = readFileSync(file, "utf8"),
      changed = text.replace(right, wrong);
    expect(changed).not.toBe(text);
    metalTexts.set(file, changed);
    for (const [path, kernel] of [
      [PRODUCT, "product"],
      [TILE_ROLES, "tile_roles"],
    ] as const)
      metalTexts.set(path, onlyInstance(metalTexts.get(path) ?? readFileSync(path, "utf8"), `${kernel}_${dtype}`));
    try {
      set({ check: "1" });
      using device = openMetal();
      const seen = async () => {
        const results = [await multiply(device, dtype, 65, 63, 18), await roles(device, dtype, "")];
        for (const { got, expected } of results) expect(got).toEqual(expected);
      };
      await expect(seen()).rejects.toThrow(FOUND);
    } finally {
      metalTexts.clear();
    }
  });
});

describe("the README", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const kernel = readFileSync(new URL("native/product.metal", import.meta.url), "utf8");

  it("shows the product as the example has it", () => {
    const product = /^ {2}\/\/ The product:\n([\s\S]*?)^ {2}\}\n/m.exec(kernel)?.[0] ?? "";
    expect(product).not.toBe("");
    expect(readme.includes(product.replace(/^ {2}/gm, ""))).toBe(true);
  });
});
