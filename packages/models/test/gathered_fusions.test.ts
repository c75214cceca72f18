// The gated units of chosen experts have the bits of the chain, alone and where rules make them of recorded calls.
import { type CommandEncoder, Device, FLOATS, type FloatDtype, type Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { swiglu } from "@mlxts/nn";
import { gatherQuantizedMatmul, gatherQuantizedMatmulSwiglu, type Quantized, quant4Fusions } from "@mlxts/quant4";
import { DEVICES, testedLevels } from "@mlxts/test-kit/devices";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { afterAll, describe, expect, it } from "vitest";

const LEVELS = Device.open().gpu ? [] : testedLevels();
const PLACES: [string, () => Device][] = [
  ...DEVICES.map(([name, open]): [string, () => Device] => [name, open]),
  ...LEVELS.map((level): [string, () => Device] => [`cpu ${level}`, () => Device.open("cpu", { level })]),
];
const EXPERTS = 7;

interface Setting {
  rows: number;
  cols: number;
  bits: 4 | 8;
  groupSize: 32 | 64 | 128;
  scales: FloatDtype;
}

describe.each(PLACES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());
  const random = new Random(43);
  const tensor = (dtype: FloatDtype, shape: number[], scale = 1) =>
    device.tensor(
      dtype,
      shape,
      random.normals(
        shape.reduce((a, b) => a * b, 1),
        scale,
      ),
    );
  function stack({ rows, cols, bits, groupSize, scales }: Setting): Quantized {
    const words = [EXPERTS, rows, (cols * bits) / 32];
    const groups = [EXPERTS, rows, cols / groupSize];
    const weight = device.tensor("u32", words, random.integers(EXPERTS * rows * (words[2] as number), 2 ** 32));
    const [scale, bias] = [tensor(scales, groups, 0.02), tensor(scales, groups, 0.2)];
    return { weight, scales: scale, biases: bias, bits, groupSize, mode: "affine" };
  }
  const chosen = (tokens: number) => Array.from({ length: tokens * 3 }, (_, i) => (i * 5 + (i % 2)) % EXPERTS);

  async function check(
    tokens: number,
    m: number,
    setting: Setting,
    x: FloatDtype,
    outDtype: FloatDtype,
    ordered = false,
  ) {
    const encoder = device.encoder();
    const [gate, up] = [stack(setting), stack(setting)];
    const indices = chosen(tokens);
    const given = {
      x: tensor(x, [tokens, 1, m, setting.cols], 1 / Math.sqrt(setting.cols)),
      rhsIndices: device.tensor("u32", [tokens, 3], indices),
      ...(ordered && pairOrderOn(device, indices, EXPERTS)),
    };
    const alone = (q: Quantized) => gatherQuantizedMatmul(encoder, { ...given, q }, { outDtype });
    const chain = swiglu(encoder, { gate: alone(gate), up: alone(up) });
    const joint = gatherQuantizedMatmulSwiglu(encoder, { ...given, gate, up }, { outDtype });
    await encoder.commit();
    const name = `${tokens} × ${m} of ${x} in ${outDtype}, ${JSON.stringify(setting)}`;
    expect(sameBytes(await joint.read(), await chain.read()), name).toBe(true);
  }

  it("for every number of rows of x", async () => {
    for (const x of FLOATS)
      for (const bits of [4, 8] as const)
        for (const m of [1, 2, 3, 4, 5, 6, 7, 8, 9, 20])
          await check(2, m, { rows: 37, cols: 192, bits, groupSize: 64, scales: "bf16" }, x, x);
  });

  it("for every size", async () => {
    for (const groupSize of [32, 64, 128] as const)
      for (const groups of [1, 3, 5])
        for (const rows of [1, 3, 15, 16, 17, 64, 100])
          await check(3, 1, { rows, cols: groups * groupSize, bits: 4, groupSize, scales: "f16" }, "bf16", "bf16");
  });

  it("for every dtype, in order or not", async () => {
    for (const x of FLOATS)
      for (const scales of FLOATS)
        for (const outDtype of FLOATS)
          for (const ordered of [false, true])
            await check(3, 1, { rows: 20, cols: 128, bits: 8, groupSize: 32, scales }, x, outDtype, ordered);
  });

  /** Records twice, once with the rules: the same bytes; gives the ops that were dispatched. */
  async function fused(record: (encoder: CommandEncoder) => Tensor): Promise<string[]> {
    const runs = [];
    for (const fuse of [[], quant4Fusions]) {
      const encoder = device.encoder({ optimize: { fuse, reorder: false } });
      const out = record(encoder);
      const result = await encoder.commit({ keep: [out], profile: true });
      runs.push({
        bytes: await out.read(),
        ops: (result.dispatches ?? []).map(({ label }) => label.split("/")[0] as string),
      });
    }
    const [plain, joint] = runs as [(typeof runs)[number], (typeof runs)[number]];
    expect(sameBytes(joint.bytes, plain.bytes)).toBe(true);
    return joint.ops;
  }

  const SETTING: Setting = { rows: 20, cols: 128, bits: 4, groupSize: 64, scales: "bf16" };
  const [gates, ups] = [stack(SETTING), stack(SETTING)];
  const eight = stack({ ...SETTING, bits: 8 });
  const x = tensor("f32", [4, 1, 1, 128]);
  const rhsIndices = device.tensor("u32", [4, 3], chosen(4));
  const others = device.tensor("u32", [4, 3], chosen(4).reverse());
  const order = pairOrderOn(device, chosen(4), EXPERTS);
  const CHAIN = ["gatherQuantizedMatmul", "gatherQuantizedMatmul", "swiglu"];
  const product = (to: CommandEncoder, q: Quantized, changes: object = {}, outDtype?: FloatDtype) =>
    gatherQuantizedMatmul(to, { x, q, rhsIndices, ...changes }, { outDtype });

  it.each<[what: string, ops: string[], record: (encoder: CommandEncoder) => Tensor]>([
    [
      "gate and up",
      ["gatherQuantizedMatmulSwiglu"],
      (to) => swiglu(to, { gate: product(to, gates), up: product(to, ups) }),
    ],
    [
      "up first",
      ["gatherQuantizedMatmulSwiglu"],
      (to) => {
        const up = product(to, ups, {}, "bf16");
        return swiglu(to, { gate: product(to, gates, {}, "bf16"), up });
      },
    ],
    [
      "of other experts",
      CHAIN,
      (to) => swiglu(to, { gate: product(to, gates), up: product(to, ups, { rhsIndices: others }) }),
    ],
    ["of other bits", CHAIN, (to) => swiglu(to, { gate: product(to, gates), up: product(to, eight) })],
    [
      "in order, which takes as many dispatches",
      CHAIN,
      (to) => swiglu(to, { gate: product(to, gates, order), up: product(to, ups, order) }),
    ],
  ])("rules join them: %s", async (_name, ops, record) => {
    expect(await fused(record)).toEqual(ops);
  });
});
