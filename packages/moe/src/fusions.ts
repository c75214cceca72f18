// Rules by which ops of this package and others become one op. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { moeCombineRmsNorm } from "./moe_combine_rms_norm.ts";

const COMBINED = ["y", "weights", "order", "shared", "sharedGate", "residual"];

/** For `device.encoder({ optimize: { fuse } })`. `rmsNorm` is known by its name. */
export const moeFusions = [
  defineFusion({
    calls: { combine: "moeCombine", norm: "rmsNorm" },
    links: { "norm.x": "combine.out" },
    into: moeCombineRmsNorm,
    tensors: {
      ...Object.fromEntries(COMBINED.map((name) => [name, `combine.${name}`])),
      normWeight: "norm.weight",
      sum: "combine.out",
      out: "norm.out",
    },
    options: { eps: "norm.eps", weightOffset: "norm.weightOffset", rounding: "norm.rounding" },
  }),
];
