// gatherQuantizedMatmul: what it refuses, and what fails when the data are wrong.
import { Device, type Dtype } from "@mlxts/core";
import { changeLimits, Random } from "@mlxts/core/testing";
import { ORDERS } from "@mlxts/test-kit/devices";
import { pairOrder, pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { refusalTests } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { gatherQuantizedMatmul, type Quantized, quantizedMatmul } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const [EXPERTS, ROWS, COLS] = [5, 6, 128];
const stack = (on: Device, changes: object = {}, cols = COLS): Quantized => ({
  weight: on.tensor("u32", [EXPERTS, ROWS, cols / 8]),
  scales: on.tensor("bf16", [EXPERTS, ROWS, cols / 64]),
  biases: on.tensor("bf16", [EXPERTS, ROWS, cols / 64]),
  bits: 4,
  groupSize: 64,
  mode: "affine",
  ...changes,
});
const t = (dtype: Dtype, ...shape: number[]) => device.tensor(dtype, shape);
const call =
  (inputs: object, options: object = {}) =>
  () => {
    const given = { x: t("f32", 3, 1, 1, COLS), q: stack(device), rhsIndices: t("u32", 3, 2), ...inputs };
    gatherQuantizedMatmul(device.encoder(), given, options);
  };

describe("gatherQuantizedMatmul refuses", () => {
  const [order, offsets] = [t("i32", 6), t("i32", EXPERTS + 1)];
  const overlapping = t("f32", 600);
  const name = "gatherQuantizedMatmul";
  refusalTests([
    [
      "no indices",
      call({ rhsIndices: undefined }),
      `${name}: \`rhsIndices\` must be a Tensor, got undefined`,
      "TypeError",
    ],
    [
      "one matrix",
      call({ q: { ...stack(device), weight: t("u32", 6, 16), scales: t("bf16", 6, 2), biases: t("bf16", 6, 2) } }),
      `${name}: \`weight\` must have 3 dimensions [E, rows, words], got [6, 16]`,
    ],
    [
      "2 bits",
      call({ q: stack(device, { bits: 2 }) }),
      `${name}: a width of 2 bits is not supported — bits 4, 8 are`,
      "UnsupportedDtype",
    ],
    [
      "mode",
      call({ q: stack(device, { mode: "mxfp4" }) }),
      `${name}: mode mxfp4 is not supported — mode affine is`,
      "UnsupportedDtype",
    ],
    [
      "scales of other matrices",
      call({ q: stack(device, { scales: t("bf16", 4, ROWS, 2) }) }),
      `${name}: \`scales\` must have shape [5, 6, 2] (groupSize 64, 4 bits), got [4, 6, 2]`,
    ],
    [
      "columns of x",
      call({ x: t("f32", 3, 1, 1, 64) }),
      `${name}: \`x\` must have a last dimension of 128 (cols), got [3, 1, 1, 64]`,
    ],
    ["dtype of x", call({ x: t("i32", 3, 1, 1, COLS) }), `${name}: \`x\` must have dtype f32 or f16 or bf16, got i32`],
    [
      "tokens",
      call({ x: t("f32", 4, 1, 1, COLS) }),
      `${name}: \`rhsIndices\` must broadcast with the leading dimensions of \`x\` [4, 1], got [3, 2]`,
    ],
    [
      "dtype of indices",
      call({ rhsIndices: t("f32", 3, 2) }),
      `${name}: \`rhsIndices\` must have dtype u32 or i32, got f32`,
    ],
    [
      "two dtypes of indices",
      call({ lhsIndices: t("i32", 3, 2) }),
      `${name}: \`lhsIndices\` must have dtype u32, got i32`,
    ],
    ["order alone", call({ order }), `${name}: \`offsets\` must be given with \`order\`, got undefined`],
    ["offsets alone", call({ offsets }), `${name}: \`order\` must be given with \`offsets\`, got undefined`],
    [
      "an order of more rows",
      call({ x: t("f32", 3, 1, 2, COLS), order, offsets }),
      `${name}: \`x\` must have one row to a matrix (M = 1) with \`order\`, got [3, 1, 2, 128]`,
    ],
    ["a short order", call({ order: t("i32", 5), offsets }), `${name}: \`order\` must have shape [6], got [5]`],
    ["short offsets", call({ order, offsets: t("i32", 5) }), `${name}: \`offsets\` must have shape [6], got [5]`],
    [
      "shape of out",
      call({ out: t("f32", 3, 2, ROWS) }),
      `${name}: \`out\` must have shape [3, 2, 1, 6], got [3, 2, 6]`,
    ],
    ["outDtype", call({}, { outDtype: "u32" }), `${name}: \`outDtype\` must be one of f32, f16, bf16, got u32`],
    [
      "out over x",
      call({ x: overlapping.view(0, [3, 1, 1, COLS]), out: overlapping.view(380, [3, 2, 1, ROWS]) }),
      `${name}: \`out\` must not overlap \`x\`, got overlapping views`,
    ],
  ]);
});

// Rows of whole turns of tiles have kernels of their own on some GPUs.
const WRONG = ORDERS.flatMap(([name, open]) => [COLS, 2 * COLS].map((cols) => [name, cols, open] as const));
describe.each(WRONG)("wrong data of gatherQuantizedMatmul on %s, %i columns", (_, cols, open) => {
  const TOKENS = 40;
  const right = Array.from({ length: TOKENS * 2 }, (_, pair) => (pair * 7) % EXPERTS);

  async function failure(
    changes: {
      rhs?: [number, number][];
      lhs?: [number, number][];
      order?: [number, number][];
      offsets?: [number, number][];
    },
    signed = false,
    ordered = true,
  ): Promise<Error> {
    using on: Device = open();
    const changed = (data: readonly number[], wrong: readonly [number, number][] = []) =>
      wrong.reduce((all, [at, value]) => all.with(at, value), [...data]);
    const { order, offsets } = pairOrder(right, EXPERTS);
    const index = signed ? "i32" : "u32";
    const indices = (data: number[]) => on.tensor(index, [TOKENS, 2], data);
    const i32 = (data: number[]) => on.tensor("i32", [data.length], data);
    const encoder = on.encoder();
    gatherQuantizedMatmul(encoder, {
      x: on.tensor("bf16", [TOKENS, 1, cols]),
      q: stack(on, {}, cols),
      rhsIndices: indices(changed(right, changes.rhs)),
      ...(changes.lhs && { lhsIndices: indices(changed(right, changes.lhs)) }),
      ...(ordered && { order: i32(changed(order, changes.order)), offsets: i32(changed(offsets, changes.offsets)) }),
      ...(!changes.lhs && { x: on.tensor("bf16", [TOKENS, 1, 1, cols]) }),
    });
    return encoder.commit().then(
      () => new Error("nothing failed"),
      (error) => error as Error,
    );
  }

  it.each<[string, Parameters<typeof failure>, string]>([
    [
      "indices",
      [
        {
          rhs: [
            [71, 9],
            [13, 5],
            [40, 6],
          ],
        },
      ],
      "`rhsIndices` must be from 0 to 4, got 5 at position 13",
    ],
    [
      "indices of pairs",
      [
        {
          rhs: [
            [71, 9],
            [13, 5],
          ],
        },
        false,
        false,
      ],
      "`rhsIndices` must be from 0 to 4, got 5 at position 13",
    ],
    ["negative indices", [{ rhs: [[79, -1]] }, true], "`rhsIndices` must be from 0 to 4, got -1 at position 79"],
    [
      "far indices",
      [{ rhs: [[0, 4294967295]] }, false, false],
      "`rhsIndices` must be from 0 to 4, got 4294967295 at position 0",
    ],
    [
      "matrices of x",
      [
        {
          lhs: [
            [50, 40],
            [60, 99],
          ],
        },
      ],
      "`lhsIndices` must be from 0 to 39, got 40 at position 50",
    ],
    [
      "matrices of x, of pairs",
      [{ lhs: [[7, 40]] }, false, false],
      "`lhsIndices` must be from 0 to 39, got 40 at position 7",
    ],
    ["offsets", [{ offsets: [[2, 15]] }], "`offsets` must ascend from 0 to 80, got 15 at position 2"],
    ["the last offset", [{ offsets: [[5, 79]] }], "`offsets` must ascend from 0 to 80, got 79 at position 5"],
    ["negative offsets", [{ offsets: [[0, -3]] }], "`offsets` must ascend from 0 to 80, got -3 at position 0"],
    [
      "pairs",
      [
        {
          order: [
            [70, 80],
            [33, 2147483647],
          ],
        },
      ],
      "`order` must have the pairs of each matrix of `rhsIndices` in ascending order, got 2147483647 at position 33",
    ],
    [
      "a pair twice",
      [{ order: [[1, 0]] }],
      "`order` must have the pairs of each matrix of `rhsIndices` in ascending order, got 0 at position 1",
    ],
    [
      "a pair of an expert before, behind a lesser one",
      [{ order: [[65, 75]] }],
      "`order` must have the pairs of each matrix of `rhsIndices` in ascending order, got 75 at position 65",
    ],
  ])("%s", async (_, given, text) => {
    const error = await failure(...given);
    expect(error).toMatchObject({ code: "InvalidArgument" });
    expect(error.message).toBe(`gatherQuantizedMatmul: ${text}`);
  });
});

// A GPU's threadgroups take what fits, whatever the columns.
it.skipIf(device.gpu)("takes fewer rows of x at a time where not all fit, and refuses where not one does", async () => {
  using on = Device.open("cpu");
  const [experts, rows, cols] = [3, 17, 4096];
  const random = new Random(5);
  const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
  const q = {
    weight: on.tensor("u32", [experts, rows, cols / 8], random.integers((experts * rows * cols) / 8, 2 ** 32)),
    scales: on.tensor("f32", [experts, rows, cols / 64], random.normals((experts * rows * cols) / 64)),
    biases: on.tensor("f32", [experts, rows, cols / 64], random.normals((experts * rows * cols) / 64)),
    ...setting,
  };
  const chosen = Array.from({ length: 40 }, (_, i) => i % experts);
  for (const bytes of [1 << 22, 1 << 20, 500_000])
    for (const m of [1, 9]) {
      changeLimits(on, { maxThreadgroupBytes: 1 << 24 });
      const x = on.tensor("f32", [40, m, cols], random.normals(40 * m * cols));
      const rhsIndices = on.tensor("u32", [40], chosen);
      const ofOrder = m === 1 && pairOrderOn(on, chosen, experts);
      const encoder = on.encoder();
      const all = quantizedMatmul(encoder, { x: x.reshape([40, 1, m, cols]), q });
      changeLimits(on, { maxThreadgroupBytes: bytes });
      const out = gatherQuantizedMatmul(encoder, { x, q, rhsIndices, ...ofOrder });
      await encoder.commit();
      const [every, got] = [await all.readNumbers(), await out.readNumbers()];
      const size = m * rows;
      for (let i = 0; i < got.length; i++) {
        const pair = Math.floor(i / size);
        const expected = every[(pair * experts + (chosen[pair] as number)) * size + (i % size)] as number;
        expect(Math.abs((got[i] as number) - expected)).toBeLessThan(0.02);
      }
    }
  changeLimits(on, { maxThreadgroupBytes: 16_384 });
  const x = on.tensor("f32", [40, 1, cols]);
  expect(() => gatherQuantizedMatmul(on.encoder(), { x, q, rhsIndices: on.tensor("u32", [40], chosen) })).toThrow(
    "gatherQuantizedMatmul: `weight` must have rows that fit the 16384 bytes of a threadgroup, got 4096 columns",
  );
});
