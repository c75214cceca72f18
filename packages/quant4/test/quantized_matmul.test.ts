import { cpus } from "node:os";
import { cpuLevels, Device, FLOATS, roundTo } from "@mlxts/core";
import { BARS, changeLimits, compare, Random, within } from "@mlxts/core/testing";
import { testedLevels } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { quantizedMatmul } from "../src/index.ts";
import { decodeExactly, productReference, roundToBytes } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());

it("multiplies a large matrix", async () => {
  const [rows, cols, m] = [4096, 7168, 2];
  const { weight, scales, biases } = randomQuantized(1, 64, cols, { bits: 4, groupSize: 64 }, 8);
  // 64 rows again and again: few to compute, all to compare.
  const repeat = (data: Float64Array) =>
    Float64Array.from({ length: data.length * 64 }, (_, i) => data[i % data.length] as number);
  const q = {
    weight: device.tensor("u32", [rows, cols / 8], repeat(weight)),
    scales: device.tensor("bf16", [rows, cols / 64], repeat(scales)),
    biases: device.tensor("bf16", [rows, cols / 64], repeat(biases)),
    bits: 4,
    groupSize: 64,
    mode: "affine",
  } as const;
  const decoded = decodeExactly(
    weight,
    (await q.scales.readNumbers()).subarray(0, scales.length),
    (await q.biases.readNumbers()).subarray(0, scales.length),
    q,
  );
  for (const dtype of ["f32", "bf16"] as const)
    for (const count of [1, m, 12]) {
      const x = device.tensor(dtype, [count, cols], new Random(6).normals(count * cols, 1 / Math.sqrt(cols)));
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x, q }, { outDtype: "f32" });
      await encoder.commit();
      const expected = productReference(await x.readNumbers(), decoded, 64, cols, true);
      const all = Float64Array.from(
        { length: count * rows },
        (_, i) => expected[Math.floor(i / rows) * 64 + (i % 64)] as number,
      );
      const { R } = BARS;
      expect(within(compare(await out.readNumbers(), all), R.f32, R.spread), `${dtype} M ${count}`).toBe(true);
    }
});

const FORMS = [undefined, ...(device.gpu ? [] : ["int8-activations" as const])].flatMap((approximate) =>
  FLOATS.map((dtype) => [dtype, approximate ?? "exact", approximate] as const),
);
it.each(FORMS)("keeps what is not finite in its rows, x %s, %s", async (dtype, _, approximate) => {
  const [rows, cols, m] = [70, 256, 45];
  const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
  const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 5);
  const q = {
    weight: device.tensor("u32", [rows, cols / 8], weight),
    scales: device.tensor("f32", [rows, cols / 64], scales),
    biases: device.tensor("f32", [rows, cols / 64], biases),
    ...setting,
  };
  const numbers = new Random(4).normals(m * cols, 1 / Math.sqrt(cols));
  numbers[3 * cols + 70] = Number.NaN;
  numbers[20 * cols + 255] = Number.POSITIVE_INFINITY;
  const x = device.tensor(dtype, [m, cols], numbers);
  const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), setting);
  const multiplied = await x.readNumbers();
  const expected = productReference(approximate ? roundToBytes(multiplied, 64) : multiplied, w, rows, cols, true);
  const rowsOf = (data: Float64Array, wanted: (row: number) => boolean) => data.filter((_, i) => wanted(i / rows));
  const bad = (row: number) => [3, 20].includes(Math.floor(row));
  const good = (row: number) => !bad(row);
  for (const outDtype of new Set(["f32", dtype] as const)) {
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x, q }, { outDtype, approximate });
    await encoder.commit();
    const y = await out.readNumbers();
    expect(rowsOf(y, bad).some(Number.isFinite)).toBe(false);
    const { R } = BARS;
    expect(within(compare(rowsOf(y, good), rowsOf(expected, good)), R[outDtype], R.spread)).toBe(true);
  }
});

it.each(testedLevels())("gives the same bits with any number of threads, on cpu %s", async (level) => {
  const [rows, cols] = [467, 1344];
  const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
  const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 21);
  // Blocks of rows whose scales are out of the range in which others are multiplied.
  for (const numbers of [scales, biases])
    for (let i = 0; i < numbers.length; i++) if (i % 2688 >= 1344) numbers[i] = (numbers[i] as number) * 2 ** -115;
  const products = async (threads: number) => {
    using device = Device.open("cpu", { threads, level });
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor("bf16", [rows, cols / 64], scales),
      biases: device.tensor("bf16", [rows, cols / 64], biases),
      ...setting,
    };
    const all: Float64Array[] = [];
    const products = [1, 2, 3, 4, 5, 6, 7, 8, 9, 40].map((m) => ({ m, outDtype: m < 40 ? "f32" : "bf16" }) as const);
    for (const { m, outDtype } of products) {
      const encoder = device.encoder();
      const x = device.tensor("bf16", [m, cols], new Random(m).normals(m * cols));
      const out = quantizedMatmul(encoder, { x, q }, { outDtype });
      await encoder.commit();
      all.push(await out.readNumbers());
    }
    return all;
  };
  const one = await products(1);
  expect(await products(2)).toEqual(one);
  expect(await products(4)).toEqual(one);
});

// Of x in limbs, parts that are zero may be left out: not those that are not. All sums are whole numbers of 2^-8.
it.each(testedLevels())("keeps a small number of any group beside large ones, on cpu %s", async (level) => {
  using device = Device.open("cpu", { level });
  const rows = 21;
  for (const [cols, groupSize] of [
    [640, 64],
    [1024, 64],
    [8192, 64],
    [640, 32],
    [1280, 128],
  ] as const) {
    const groups = cols / groupSize;
    const { weight } = randomQuantized(1, rows, cols, { bits: 4, groupSize }, 3);
    const scales = new Float64Array(rows * groups).fill(1);
    const biases = new Float64Array(rows * groups);
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor("bf16", [rows, groups], scales),
      biases: device.tensor("bf16", [rows, groups], biases),
      bits: 4,
      groupSize,
      mode: "affine",
    } as const;
    const w = decodeExactly(weight, scales, biases, q);
    for (const m of [1, 2]) {
      const wanted: Float64Array[] = [];
      const encoder = device.encoder();
      const products = Array.from({ length: groups }, (_, group) => {
        const x = new Float64Array(m * cols);
        for (let i = 24; i < x.length; i += 4 * groupSize) x[i] = 128;
        x[group * groupSize + (group % 2 ? 29 : groupSize - 3)] = 3 * 2 ** -8;
        wanted.push(productReference(x, w, rows, cols, true));
        return quantizedMatmul(encoder, { x: device.tensor("bf16", [m, cols], x), q }, { outDtype: "f32" });
      });
      await encoder.commit();
      for (const [group, out] of products.entries())
        expect(await out.readNumbers(), `${cols} columns, ${m} rows, group ${group} of ${groupSize}`).toEqual(
          wanted[group],
        );
    }
  }
});

it.skipIf(!cpuLevels().includes("avx2"))(
  "gives a row of x the bits that it has alone, with AVX2 and 4 bits",
  async () => {
    using device = Device.open("cpu", { level: "avx2" });
    const [rows, most] = [33, 8];
    for (const [groupSize, cols] of [
      [32, 5120],
      [64, 1088],
      [64, 8256],
      [128, 8192],
    ] as const) {
      const weights = randomQuantized(1, rows, cols, { bits: 4, groupSize }, 5);
      const groups = [rows, cols / groupSize];
      const q = {
        weight: device.tensor("u32", [rows, cols / 8], weights.weight),
        scales: device.tensor("bf16", groups, weights.scales),
        biases: device.tensor("bf16", groups, weights.biases),
        bits: 4,
        groupSize,
        mode: "affine",
      } as const;
      const x = new Random(cols).normals(most * cols);
      for (const dtype of ["f32", "bf16"] as const) {
        const encoder = device.encoder();
        const product = (first: number, m: number) =>
          quantizedMatmul(encoder, {
            x: device.tensor(dtype, [m, cols], x.slice(first * cols, (first + m) * cols)),
            q,
          });
        const alone = Array.from({ length: most }, (_, i) => product(i, 1));
        const together = [2, 3, 4, 5, most].map((m) => product(0, m));
        await encoder.commit();
        const wanted: number[] = [];
        for (const out of alone) wanted.push(...(await out.readNumbers()));
        for (const out of together) {
          const numbers = [...(await out.readNumbers())];
          expect(numbers, `${dtype} ${cols} ${groupSize}`).toEqual(wanted.slice(0, numbers.length));
        }
      }
    }
  },
);

// Sums of whole numbers come close to what 16 and 32 bits hold where all codes and all of x are as large as can be.
it.each(testedLevels())("holds sums of the largest codes and x of one size, on cpu %s", async (level) => {
  using device = Device.open("cpu", { level });
  const [rows, cols] = [19, 1024];
  const encoder = device.encoder();
  const largest = { f32: 2 - 2 ** -23, f16: 2 - 2 ** -10, bf16: 2 - 2 ** -7 };
  const cases = FLOATS.flatMap((dtype) =>
    ([32, 64, 128] as const).flatMap((groupSize) =>
      [1, -1].flatMap((sign) =>
        [0, 0xffffffff].flatMap((codes) =>
          [1, 4].map((m) => {
            const ofGroups = (value: number) => {
              const shape = [rows, cols / groupSize];
              return device.tensor("f32", shape, new Float64Array(rows * (cols / groupSize)).fill(value));
            };
            const weight = device.tensor("u32", [rows, cols / 8], new Uint32Array((rows * cols) / 8).fill(codes));
            const q = {
              weight,
              scales: ofGroups(1),
              biases: ofGroups(-8),
              bits: 4,
              groupSize,
              mode: "affine",
            } as const;
            const size = sign * largest[dtype];
            const x = device.tensor(dtype, [m, cols], new Float64Array(m * cols).fill(size));
            const out = quantizedMatmul(encoder, { x, q }, { outDtype: "f32" });
            return {
              name: `${dtype} ${m} rows ${groupSize} ${size} ${codes}`,
              out,
              wanted: cols * size * (codes ? 7 : -8),
            };
          }),
        ),
      ),
    ),
  );
  await encoder.commit();
  for (const { name, out, wanted } of cases)
    for (const y of await out.readNumbers()) expect(Math.abs(y / wanted - 1), name).toBeLessThan(2e-6);
});

// Tiles would take parts of such weights for 0 or infinite.
it.each([-126, -110, -90, 95, 110])("multiplies weights about 2^%i", async (exponent) => {
  const [rows, cols, m] = [200, 320, 40];
  const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
  const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 17);
  // Some blocks of rows are ordinary.
  const scaled = (numbers: Float64Array) => numbers.map((v, i) => (Math.floor(i / 5 / 64) % 2 ? v * 2 ** exponent : v));
  const q = {
    weight: device.tensor("u32", [rows, cols / 8], weight),
    scales: device.tensor("f32", [rows, cols / 64], scaled(scales)),
    biases: device.tensor("f32", [rows, cols / 64], scaled(biases)),
    ...setting,
  };
  const x = device.tensor("bf16", [m, cols], new Random(9).normals(m * cols, 1 / Math.sqrt(cols)));
  const encoder = device.encoder();
  const out = quantizedMatmul(encoder, { x, q });
  await encoder.commit();
  const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), setting);
  const expected = productReference(await x.readNumbers(), w, rows, cols, true);
  const y = await out.readNumbers();
  for (const odd of [0, 1]) {
    const own = (data: Float64Array) => data.filter((_, i) => Math.floor((i % rows) / 64) % 2 === odd);
    const { R } = BARS;
    expect(within(compare(own(y), own(expected)), R.bf16, R.spread)).toBe(true);
  }
});

const onCpu = describe.skipIf(device.gpu);
// Numbers beside far larger ones lose digits where a group has one unit.
onCpu.each(testedLevels())("numbers a thousand times as large as others, on cpu %s", (level) => {
  const device = Device.open("cpu", { level });
  afterAll(() => device.dispose());

  const cases = [1, 2, 5, 8, 9, 40].flatMap((m) => ([4, 8] as const).map((bits) => [m, bits] as const));
  it.each(cases)("are multiplied within the bars: %i rows, %i bits", async (m, bits) => {
    const [rows, cols] = [200, 1024];
    const setting = { bits, groupSize: 128, mode: "affine" } as const;
    const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 41);
    const q = {
      weight: device.tensor("u32", [rows, (cols * bits) / 32], weight),
      scales: device.tensor("bf16", [rows, cols / 128], scales),
      biases: device.tensor("bf16", [rows, cols / 128], biases),
      ...setting,
    };
    const numbers = new Random(m).normals(m * cols).map((v, i) => (i % 128 === 77 ? 1000 * v : v));
    const x = device.tensor("bf16", [m, cols], numbers);
    const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), setting);
    const expected = productReference(await x.readNumbers(), w, rows, cols, true);
    for (const outDtype of FLOATS) {
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x, q }, { outDtype });
      await encoder.commit();
      const { R } = BARS;
      const compared = compare(await out.readNumbers(), expected);
      expect(within(compared, R[outDtype], R.spread), `${outDtype}: ${compared.ratio}`).toBe(true);
    }
  });
});

onCpu.each(testedLevels().filter((level) => level === "avx512"))("up to 8 rows of x, on cpu %s", (level) => {
  const device = Device.open("cpu", { level });
  afterAll(() => device.dispose());
  const onIntel = cpus()[0]?.model.includes("Intel");

  it.each(FLOATS)("have the same bits whatever others are there, x %s", async (dtype) => {
    const [rows, cols, most] = [45, 1120, 8];
    const setting = { bits: 4, groupSize: 32, mode: "affine" } as const;
    const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 43);
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor("bf16", [rows, cols / 32], scales),
      biases: device.tensor("bf16", [rows, cols / 32], biases),
      ...setting,
    };
    const numbers = new Random(44).normals(most * cols);
    for (const outDtype of new Set(["f32", dtype] as const)) {
      const products = async (first: number, m: number) => {
        const x = device.tensor(dtype, [m, cols], numbers.subarray(first * cols, (first + m) * cols));
        const encoder = device.encoder();
        const out = quantizedMatmul(encoder, { x, q }, { outDtype });
        await encoder.commit();
        return [...(await out.readNumbers())];
      };
      // Where no Intel processor multiplies, one row has a kernel of its own, and two and three of 16 bits with such results.
      const fewest = onIntel ? [1] : dtype === "bf16" && outDtype === "bf16" ? [1, 4] : [1, 2];
      for (const [i, few] of fewest.entries()) {
        const end = fewest[i + 1] ?? most + 1;
        // The first of `few` rows, or the last of the last ones.
        const each: number[] = [];
        for (let row = 0; row < most; row++) {
          const first = Math.min(row, most - few);
          each.push(...(await products(first, few)).slice((row - first) * rows, (row - first + 1) * rows));
        }
        for (let m = few + 1; m < end; m++) expect(await products(0, m)).toEqual(each.slice(0, m * rows));
      }
    }
  });
});

// What forms x may take must not show in f16: an error of 2^-15 of it moves one product in thirty to a neighbor.
onCpu.each(testedLevels())("products of f16, on cpu %s", (level) => {
  const device = Device.open("cpu", { level });
  afterAll(() => device.dispose());

  it.each([1, 2, 3, 9].flatMap((m) => ([4, 8] as const).map((bits) => [m, bits] as const)))(
    "are nearly all the nearest numbers: %i rows, %i bits",
    async (m, bits) => {
      const [rows, cols] = [1024, 512];
      const setting = { bits, groupSize: 64, mode: "affine" } as const;
      const { weight, scales, biases } = randomQuantized(1, rows, cols, setting, 31);
      const q = {
        weight: device.tensor("u32", [rows, (cols * bits) / 32], weight),
        scales: device.tensor("f16", [rows, cols / 64], scales),
        biases: device.tensor("f16", [rows, cols / 64], biases),
        ...setting,
      };
      const x = device.tensor("f16", [m, cols], new Random(m).normals(m * cols, 1 / Math.sqrt(cols)));
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x, q });
      await encoder.commit();
      const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), setting);
      const exact = productReference(await x.readNumbers(), w, rows, cols, true);
      const others = (await out.readNumbers()).filter((y, i) => y !== roundTo("f16", exact[i] as number));
      expect(others.length / exact.length).toBeLessThan(0.01);
    },
  );
});

// A GPU's threadgroups take what fits, whatever the columns.
onCpu.each(testedLevels())("rows of x that do not fit a threadgroup, on cpu %s", (level) => {
  const device = Device.open("cpu", { level });
  const { limits } = device;
  afterAll(() => device.dispose());

  async function check(m: number, rows: number, cols: number, batch: readonly number[], maxThreadgroupBytes: number) {
    changeLimits(device, { maxThreadgroupBytes });
    const stack = batch.reduce((a, b) => a * b, 1);
    const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
    const { weight, scales, biases } = randomQuantized(stack, rows, cols, setting, 12);
    const q = {
      weight: device.tensor("u32", [...batch, rows, cols / 8], weight),
      scales: device.tensor("f32", [...batch, rows, cols / 64], scales),
      biases: device.tensor("f32", [...batch, rows, cols / 64], biases),
      ...setting,
    };
    const x = device.tensor("f32", [...batch, m, cols], new Random(3).normals(stack * m * cols, 1 / Math.sqrt(cols)));
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x, q });
    await encoder.commit();
    const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), setting);
    const numbers = await x.readNumbers();
    const expected = Float64Array.from(
      Array.from({ length: stack }, (_, z) => [
        ...productReference(
          numbers.subarray(z * m * cols, (z + 1) * m * cols),
          w.subarray(z * rows * cols, (z + 1) * rows * cols),
          rows,
          cols,
          true,
        ),
      ]).flat(),
    );
    const { R } = BARS;
    const name = `M ${m}, ${cols} columns, ${maxThreadgroupBytes} bytes`;
    const compared = compare(await out.readNumbers(), expected);
    expect(within(compared, R.f32, R.spread), `${name}: ${compared.ratio}`).toBe(true);
    for (const tensor of [x, q.weight, q.scales, q.biases]) tensor.dispose();
  }

  it("are fewer to a block, then slices", async () => {
    // Panels want 172 KiB and 16.9 KB for each row of x, the other kernel 8.4 KB and 25.9 KB.
    for (const bytes of [1 << 20, 400_000, 250_000, 200_000, 90_000, 36_000])
      for (const m of [1, 3, 8, 9, 20]) for (const batch of [[], [2, 2]]) await check(m, 17, 4096, batch, bytes);
  });

  it("are refused where not one does", () => {
    changeLimits(device, { maxThreadgroupBytes: 16_384 });
    const encoder = device.encoder();
    const q = {
      weight: device.tensor("u32", [3, 512]),
      scales: device.tensor("f32", [3, 64]),
      biases: device.tensor("f32", [3, 64]),
      bits: 4,
      groupSize: 64,
      mode: "affine",
    } as const;
    expect(() => quantizedMatmul(encoder, { x: device.tensor("f32", [2, 4096]), q })).toThrow(
      "quantizedMatmul: `weight` must have rows that fit the 16384 bytes of a threadgroup, got 4096 columns",
    );
    expect(quantizedMatmul(encoder, { x: device.tensor("f32", [2, 3]), q }, { transpose: false }).shape).toEqual([
      2, 4096,
    ]);
  });

  it("are as many as the device has room for", async () => {
    const { maxThreadgroupBytes } = limits;
    await check(64, 4, 131_072, [], maxThreadgroupBytes);
    await check(8, 4, 524_288, [], maxThreadgroupBytes);
    await check(11, 4, 524_288, [], maxThreadgroupBytes);
  });
});
