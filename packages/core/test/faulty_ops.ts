// Ops declared as x + 1, each with a different error, made of the kernels of probe.ts.
import { type CommandEncoder, defineOp, Tensor } from "../src/index.ts";
import { accumulateKernel, incrementKernel } from "./kernels/probe.ts";

/** out = x + 1 in `groups` threadgroups of `perGroup` elements, whatever the sizes of the views. */
function plusOne(encoder: CommandEncoder, x: Tensor, out: Tensor, groups = 1, perGroup = x.size): void {
  encoder.dispatch(incrementKernel, {
    variant: "u32",
    buffers: { x, out },
    params: { perGroup, microseconds: 0 },
    sizes: { groups },
  });
}

const moved = (tensor: Tensor, bytes: number): Tensor =>
  new Tensor(tensor.buffer, tensor.dtype, tensor.shape, { byteOffset: tensor.byteOffset + bytes });

type Encode = (encoder: CommandEncoder, x: Tensor, out: Tensor) => void;

const plusOneOp = (encode: Encode) =>
  defineOp({
    name: "plusOne",
    summary: "x + 1",
    inputs: { x: { dtype: ["u32"], shape: "N" } },
    outputs: { out: { dtype: ["=x"], shape: "N" } },
    params: {},
    encode: ({ encoder, inputs: { x }, outputs: { out } }) => encode(encoder, x, out),
  });

export const rightOp = plusOneOp((encoder, x, out) => plusOne(encoder, x, out));

export const faultyOps = {
  writesPastTheEnd: plusOneOp((encoder, x, out) => plusOne(encoder, x, out, x.size + 1, 1)),
  writesBeforeTheStart: plusOneOp((encoder, x, out) => plusOne(encoder, moved(x, -4), moved(out, -4), x.size + 1, 1)),
  modifiesItsInput: plusOneOp((encoder, x, out) => {
    plusOne(encoder, x, out);
    plusOne(encoder, x, x);
  }),
  ignoresTheOffset: plusOneOp((encoder, x, out) => plusOne(encoder, moved(x, -x.byteOffset), out)),
  /** Right where a view starts at a vector of 64 bytes. */
  roundsTheOffsetDown: plusOneOp((encoder, x, out) => plusOne(encoder, moved(x, -(x.byteOffset % 64)), out)),
  leavesTheOutput: plusOneOp(() => {}),
  skipsTheTail: plusOneOp((encoder, x, out) => plusOne(encoder, x, out, Math.floor(x.size / 4), 4)),
  /** Adds each element to scratch that was never set to 0. */
  trustsScratch: plusOneOp((encoder, x, out) => {
    const scratch = encoder.empty("u32", [x.size]);
    for (let i = 0; i < x.size; i++)
      encoder.dispatch(accumulateKernel, {
        variant: "u32",
        buffers: { x: x.view(i, [1]), y: undefined, total: scratch.view(i, [1]) },
        params: {},
        sizes: {},
      });
    plusOne(encoder, scratch, out);
  }),
  /** Each threadgroup reads what the one before it writes: x[0] + 3 + i when they run one after the other. */
  dependsOnOrder: plusOneOp((encoder, x, out) => {
    const chain = encoder.empty("u32", [x.size + 1]);
    plusOne(encoder, x, chain.view(0, [x.size]));
    plusOne(encoder, chain.view(0, [1]), chain.view(1, [x.size]), x.size, 1);
    plusOne(encoder, chain.view(1, [x.size]), out);
  }),
};

/** The right numbers in another shape. */
export const reshapingOp = Object.assign(
  (encoder: CommandEncoder, inputs: Parameters<typeof rightOp>[1]) => {
    const out = rightOp(encoder, inputs);
    return out.view(0, [1, out.size]);
  },
  { op: rightOp.op },
);

/** An f32 op that writes nothing. */
export const silentFloatOp = defineOp({
  name: "silent",
  summary: "x",
  inputs: { x: { dtype: ["f32"], shape: "N" } },
  outputs: { out: { dtype: ["=x"], shape: "N" } },
  params: {},
  encode: () => {},
});

const several = defineOp({
  name: "several",
  summary: "x + 1, and again where asked for",
  inputs: { x: { dtype: ["u32"], shape: "N" } },
  outputs: {
    out: { dtype: ["=x"], shape: "N" },
    extra: { dtype: ["=x"], shape: "N", optional: true },
  },
  params: {},
  encode: ({ encoder, inputs: { x }, outputs: { out, extra } }) => {
    plusOne(encoder, x, out);
    if (extra) plusOne(encoder, x, extra);
  },
});

/** Two outputs, one of them optional, of which `lost` is not returned. */
export const severalOp = (lost?: "out" | "extra") =>
  Object.assign(
    (encoder: CommandEncoder, inputs: Parameters<typeof several>[1]) => {
      const result = several(encoder, inputs);
      return lost ? { ...result, [lost]: undefined } : result;
    },
    { op: several.op },
  );
