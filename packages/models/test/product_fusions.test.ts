// Joint products have the bits of the products that they join, alone and where rules make them of recorded calls.
import { type CommandEncoder, type Device, ELSEWHERE, type FloatDtype, type Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { gatherMatmul, gatherMatmulSwiglu, matmul, matmulSwiglu, multiMatmul, nnFusions, swiglu } from "@mlxts/nn";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";

const DTYPES: readonly FloatDtype[] = ["f32", "f16", "bf16"];
/** Rows of x, and columns of it: those that the kernels for few rows take, and more. */
const ROWS = [1, 2, 3, 5, 8, 9, 20];
const COLS = [1, 5, 32, 100, 520];
const WIDTHS = [3, 70, 33, 1024] as const;

describe.each(DEVICES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());
  const random = new Random(41);
  const tensor = (dtype: FloatDtype, shape: number[]) =>
    device.tensor(dtype, shape, random.normals(shape.reduce((a, b) => a * b, 1)));
  const expectSame = async (joint: Tensor | undefined, alone: Tensor, name: string) =>
    expect(sameBytes(await (joint as Tensor).read(), await alone.read()), name).toBe(true);

  it.each(DTYPES)("%s", async (dtype) => {
    for (const cols of COLS)
      for (const rows of ROWS)
        for (const outDtype of rows < 3 ? DTYPES : [dtype]) {
          const encoder = device.encoder();
          const x = tensor(dtype, [rows, cols]);
          const [a, b, c, d] = WIDTHS.map((width) => tensor("bf16", [width, cols])) as [Tensor, Tensor, Tensor, Tensor];
          const options = { outDtype };
          const alone = [a, b, c, d].map((weight) => matmul(encoder, { x, weight }, options));
          const joint = multiMatmul(encoder, { x, a, b, c, d, outC: true, outD: true }, options);
          const up = tensor("bf16", [70, cols]);
          const unit = swiglu(encoder, { gate: alone[1] as Tensor, up: matmul(encoder, { x, weight: up }, options) });
          const gated = matmulSwiglu(encoder, { x, gate: b, up }, options);
          await encoder.commit();
          const name = `${rows} × ${cols} in ${outDtype}`;
          for (const [i, out] of [joint.outA, joint.outB, joint.outC, joint.outD].entries())
            await expectSame(out, alone[i] as Tensor, `${name}, ${i}`);
          await expectSame(gated, unit, name);
        }
  });

  it.each(DTYPES)("%s, of chosen experts", async (dtype) => {
    const [experts, width] = [5, 37];
    for (const cols of COLS)
      for (const rows of ROWS) {
        const encoder = device.encoder();
        const given = {
          x: tensor(dtype, [2, 1, rows, cols]),
          rhsIndices: device.tensor("u32", [2, 3], [4, 0, 1, 3, 3, 2]),
        };
        const options = { rows: width };
        const stack = () => tensor("bf16", [experts, width, cols]);
        const flat = (weight: Tensor) => weight.reshape([weight.size]);
        const startsAt = (order: readonly number[]) =>
          device.tensor(
            "u32",
            [experts],
            order.map((e) => e * width * cols),
          );
        const [gate, up] = [stack(), stack()];
        const [gateStarts, upStarts] = [startsAt([0, 1, 2, 3, 4]), startsAt([4, 3, 2, 1, 0])];
        const gates = gatherMatmul(encoder, { ...given, weight: gate });
        const ups = gatherMatmul(encoder, { ...given, weight: up });
        const upsAnywhere = gatherMatmul(encoder, { ...given, weight: flat(up), starts: upStarts }, options);
        const chains = [swiglu(encoder, { gate: gates, up: ups }), swiglu(encoder, { gate: gates, up: upsAnywhere })];
        const anywhere = { gate: flat(gate), up: flat(up), gateStarts, upStarts };
        const joint = [
          gatherMatmulSwiglu(encoder, { ...given, gate, up }),
          gatherMatmulSwiglu(encoder, { ...given, ...anywhere }, options),
        ];
        await encoder.commit();
        for (const [i, chain] of chains.entries()) await expectSame(joint[i], chain, `${rows} × ${cols}, ${i}`);
      }
  });

  /** Records twice, once with the rules: the same bytes; gives the ops that were dispatched. */
  async function fused(record: (encoder: CommandEncoder) => Tensor[]): Promise<string[]> {
    const runs = [];
    for (const fuse of [[], nnFusions]) {
      const encoder = device.encoder({ optimize: { fuse, reorder: false } });
      const keep = record(encoder);
      const result = await encoder.commit({ keep, profile: true });
      runs.push({
        bytes: await Promise.all(keep.map((t) => t.read())),
        ops: (result.dispatches ?? []).map(({ label }) => label.split("/")[0] as string),
      });
    }
    const [plain, joint] = runs as [(typeof runs)[number], (typeof runs)[number]];
    for (const [i, bytes] of joint.bytes.entries()) expect(sameBytes(bytes, plain.bytes[i] as never)).toBe(true);
    return joint.ops;
  }
  const [x, other] = [tensor("f32", [2, 64]), tensor("f32", [2, 64])];
  const [a, b, c, d, e] = [3, 70, 33, 16, 70].map((width) => tensor("bf16", [width, 64])) as Tensor[] as [
    Tensor,
    Tensor,
    Tensor,
    Tensor,
    Tensor,
  ];
  const bias = tensor("f32", [70]);
  const columns = tensor("bf16", [64, 9]);
  const times = (encoder: CommandEncoder, weight: Tensor, outDtype?: FloatDtype) =>
    matmul(encoder, { x, weight }, { outDtype });

  it("rules leave products apart whose matrices lie in several weights", async () => {
    const parts = [
      [0, ELSEWHERE],
      [ELSEWHERE, 0],
    ].map((starts) => ({ weight: tensor("bf16", [9 * 64]), starts: device.tensor("u32", [2], starts) }));
    const rhsIndices = device.tensor("u32", [2, 2], [1, 0, 0, 1]);
    const product = (encoder: CommandEncoder) => {
      const out = encoder.empty("f32", [2, 2, 1, 9]);
      for (const part of parts)
        gatherMatmul(encoder, { x: x.reshape([2, 1, 1, 64]), ...part, rhsIndices, out }, { rows: 9 });
      return out;
    };
    const ops = await fused((encoder) => [swiglu(encoder, { gate: product(encoder), up: product(encoder) })]);
    expect(ops).toEqual([...Array(4).fill("gatherMatmul"), "swiglu"]);
  });

  it.each<[what: string, ops: string[], record: (encoder: CommandEncoder) => Tensor[]]>([
    ["four", ["multiMatmul"], (to) => [times(to, a), times(to, b), times(to, c), times(to, d)]],
    ["three", ["multiMatmul"], (to) => [times(to, a), times(to, b), times(to, c)]],
    ["five", ["matmul", "multiMatmul"], (to) => [times(to, a), times(to, b), times(to, c), times(to, d), times(to, e)]],
    ["gate and up", ["matmulSwiglu"], (to) => [swiglu(to, { gate: times(to, b), up: times(to, e) })]],
    [
      "up first",
      ["matmulSwiglu"],
      (to) => {
        const up = times(to, e);
        return [swiglu(to, { gate: times(to, b), up })];
      },
    ],
    [
      "another beside gate and up",
      ["matmulSwiglu", "matmul"],
      (to) => [swiglu(to, { gate: times(to, b), up: times(to, e) }), times(to, a)],
    ],
    ["of another x", ["matmul", "matmul"], (to) => [times(to, a), matmul(to, { x: other, weight: b })]],
    ["in another dtype", ["matmul", "matmul"], (to) => [times(to, a), times(to, b, "bf16")]],
    ["with a bias", ["matmul", "matmul"], (to) => [times(to, a), matmul(to, { x, weight: b, bias })]],
    [
      "of another transpose",
      ["matmul", "matmul"],
      (to) => [times(to, a), matmul(to, { x, weight: columns }, { transpose: false })],
    ],
  ])("rules join products: %s", async (_name, ops, record) => {
    expect((await fused(record)).sort()).toEqual([...ops].sort());
  });
});
