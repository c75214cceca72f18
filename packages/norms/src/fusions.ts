// Rules by which norms and the sums or products beside them become one op. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { addRmsNorm } from "./add_rms_norm.ts";
import { rmsNormAdd } from "./rms_norm_add.ts";
import { rmsNormMul } from "./rms_norm_mul.ts";

const options = { eps: "norm.eps", weightOffset: "norm.weightOffset", rounding: "norm.rounding" };

/** The operands of a sum or product: the one that is the norm, and the other one. */
const OPERANDS = [
  ["a", "b"],
  ["b", "a"],
] as const;

/** For `device.encoder({ optimize: { fuse } })`. The ops that they join are known by name: `add` and `elementwiseMul` of any package. */
export const normFusions = [
  ...OPERANDS.map(([normed, other]) =>
    defineFusion({
      calls: { norm: "rmsNorm", product: "elementwiseMul" },
      links: { [`product.${normed}`]: "norm.out" },
      into: rmsNormMul,
      tensors: { x: "norm.x", weight: "norm.weight", factor: `product.${other}`, out: "product.out" },
      options,
    }),
  ),
  defineFusion({
    calls: { sum: "add", norm: "rmsNorm" },
    links: { "norm.x": "sum.out" },
    into: addRmsNorm,
    tensors: { a: "sum.a", b: "sum.b", weight: "norm.weight", sum: "sum.out", out: "norm.out" },
    options,
  }),
  ...OPERANDS.map(([normed, other]) =>
    defineFusion({
      calls: { norm: "rmsNorm", sum: "add" },
      links: { [`sum.${normed}`]: "norm.out" },
      into: rmsNormAdd,
      tensors: { x: "norm.x", weight: "norm.weight", residual: `sum.${other}`, out: "sum.out" },
      options,
    }),
  ),
];
