import { Device, type Dtype, type Tensor } from "@mlxts/core";
import { afterAll, expect, it } from "vitest";
import {
  dequantize,
  gatherQuantizedMatmul,
  gatherQuantizedMatmulSwiglu,
  multiQuantizedMatmul,
  quantize,
  quantizedEmbedding,
  quantizedMatmul,
  quantizedMatmulSwiglu,
} from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

type Shapes = Record<string, [dtype: Dtype, ...shape: number[]]>;
type Tensors = Record<string, Tensor>;

const Q: Shapes = { weight: ["u32", 6, 16], scales: ["bf16", 6, 2], biases: ["bf16", 6, 2] };
const record = ({ weight, scales, biases }: Tensors) => ({ weight, scales, biases, bits: 4, groupSize: 64 });

/** The same as the parts of an input, and the record of them. */
const named = (name: string, stack: number[] = []): Shapes =>
  Object.fromEntries(
    Object.entries(Q).map(([part, [dtype, ...shape]]) => [`${name}.${part}`, [dtype, ...stack, ...shape]]),
  );
const recordOf = (name: string, tensors: Tensors) =>
  record(Object.fromEntries(Object.keys(Q).map((part) => [part, tensors[`${name}.${part}`]])) as Tensors);

const OPS: { name: string; inputs: Shapes; outputs: Shapes; call: (tensors: Tensors) => void }[] = [
  {
    name: "quantizedMatmul",
    inputs: { x: ["f32", 3, 128], ...Q, bias: ["f32", 6] },
    outputs: { out: ["f32", 3, 6] },
    call: ({ x, bias, out, ...q }) => quantizedMatmul(device.encoder(), { x, bias, out, q: record(q) } as never),
  },
  {
    name: "gatherQuantizedMatmul",
    inputs: {
      x: ["f32", 2, 1, 128],
      weight: ["u32", 2, 6, 16],
      scales: ["bf16", 2, 6, 2],
      biases: ["bf16", 2, 6, 2],
      rhsIndices: ["u32", 2],
      lhsIndices: ["u32", 2],
      order: ["i32", 2],
      offsets: ["i32", 3],
    },
    outputs: { out: ["f32", 2, 1, 6] },
    call: ({ weight, scales, biases, ...rest }) =>
      gatherQuantizedMatmul(device.encoder(), { ...rest, q: record({ weight, scales, biases } as Tensors) } as never),
  },
  {
    name: "quantizedMatmulSwiglu",
    inputs: { x: ["f32", 3, 128], ...named("gate"), ...named("up") },
    outputs: { out: ["f32", 3, 6] },
    call: (tensors) => {
      const { x, out } = tensors;
      const [gate, up] = [recordOf("gate", tensors), recordOf("up", tensors)];
      quantizedMatmulSwiglu(device.encoder(), { x, out, gate, up } as never);
    },
  },
  {
    name: "multiQuantizedMatmul",
    inputs: { x: ["f32", 3, 128], ...named("a"), ...named("b"), ...named("c"), ...named("d") },
    outputs: { outA: ["f32", 3, 6], outB: ["f32", 3, 6], outC: ["f32", 3, 6], outD: ["f32", 3, 6] },
    call: (tensors) => {
      const { x, outA, outB, outC, outD } = tensors;
      const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => recordOf(name, tensors));
      multiQuantizedMatmul(device.encoder(), { x, a, b, c, d, outA, outB, outC, outD } as never);
    },
  },
  {
    name: "gatherQuantizedMatmulSwiglu",
    inputs: {
      x: ["f32", 2, 1, 128],
      ...named("gate", [2]),
      ...named("up", [2]),
      rhsIndices: ["u32", 2],
      lhsIndices: ["u32", 2],
      order: ["i32", 2],
      offsets: ["i32", 3],
    },
    outputs: { out: ["f32", 2, 1, 6] },
    call: (tensors) => {
      const { x, rhsIndices, lhsIndices, order, offsets, out } = tensors;
      const [gate, up] = [recordOf("gate", tensors), recordOf("up", tensors)];
      const given = { x, gate, up, rhsIndices, lhsIndices, order, offsets, out };
      gatherQuantizedMatmulSwiglu(device.encoder(), given as never);
    },
  },
  {
    name: "quantizedEmbedding",
    inputs: { ids: ["u32", 2], ...Q },
    outputs: { out: ["bf16", 2, 128] },
    call: ({ ids, out, ...q }) => quantizedEmbedding(device.encoder(), { ids, out, q: record(q) } as never),
  },
  {
    name: "dequantize",
    inputs: Q,
    outputs: { out: ["bf16", 6, 128] },
    call: ({ out, ...q }) => dequantize(device.encoder(), { out, q: record(q) } as never),
  },
  {
    name: "quantize",
    inputs: { w: ["bf16", 6, 128] },
    outputs: Q,
    call: (tensors) => quantize(device.encoder(), tensors as never),
  },
];

/** Every output with every input, and with the outputs before it. */
const pairs = OPS.flatMap((op) => {
  const outputs = Object.keys(op.outputs);
  return outputs.flatMap((output, i) =>
    [...Object.keys(op.inputs), ...outputs.slice(0, i)].map((other) => [op.name, output, other, op] as const),
  );
});

it.each(pairs)("%s: %s over %s", (_, output, other, { name, inputs, outputs, call }) => {
  const shapes = { ...inputs, ...outputs };
  const shared = device.tensor("u32", [2048]);
  const at = (word: number, [dtype, ...shape]: Shapes[string]) => shared.view(word, [1024]).cast(dtype).view(0, shape);
  const apart = Object.fromEntries(
    Object.entries(shapes).map(([key, [dtype, ...shape]]) => [key, device.tensor(dtype, shape)]),
  );
  expect(() => call(apart)).not.toThrow();
  const of = (key: string) => shapes[key] as Shapes[string];
  // The last word of one is the first of the other; the next word is free.
  const words = Math.ceil((apart[other] as Tensor).byteLength / 4);
  const placed = (word: number) => ({ ...apart, [other]: at(0, of(other)), [output]: at(word, of(output)) });
  expect(() => call(placed(words))).not.toThrow();
  expect(() => call(placed(words - 1))).toThrow(
    expect.objectContaining({
      code: "InvalidArgument",
      message: `${name}: \`${output}\` must not overlap \`${other}\`, got overlapping views`,
    }),
  );
});
