import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { quant4Library } from "./library.ts";
import { ceil } from "./product_launch.ts";

const blocks = (size: number, block: number) => ({
  threadgroups: [ceil(size, block), 1, 1] as const,
  params: { tail: ((size - 1) % block) + 1 },
});

/** silu(gates) · ups: what follows two products with many rows of x. The last threadgroup has `tail` elements. */
export const gateProductsKernel = defineKernel({
  library: quant4Library,
  name: "gate_products",
  variants: FLOATS,
  buffers: { gates: "read", ups: "read", out: "write" },
  params: {},
  inPlace: [["out", "gates"]],
  launchParams: { cpu: { tail: "u32" }, gpu: { tail: "u32" } },
  constants: { cpu: { block: 4096 }, gpu: { block: 1024 } },
  launch: {
    cpu: ({ size }: { size: number }, { constants }) => blocks(size, constants.block),
    gpu: ({ size }, { constants }) => ({
      ...blocks(size, constants.block),
      threadsPerThreadgroup: [constants.block / 4, 1, 1],
    }),
  },
});

/** The gated unit of two products, which `encode` records one after the other. */
export function encodeGated(
  encoder: CommandEncoder,
  op: string,
  out: Tensor,
  encode: (input: "gate" | "up", product: Tensor) => void,
): void {
  const mark = encoder.arena?.mark();
  const ups = encoder.empty(out.dtype, out.shape);
  encode("gate", out);
  encode("up", ups);
  encoder.dispatch(gateProductsKernel, {
    op,
    variant: out.dtype,
    buffers: { gates: out, ups, out },
    params: {},
    sizes: { size: out.size },
  });
  if (mark) encoder.arena?.rewind(mark);
}
