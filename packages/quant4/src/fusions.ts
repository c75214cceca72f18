// Rules by which calls of this package's ops become one. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { gatherQuantizedMatmulSwiglu } from "./gather_quantized_matmul_swiglu.ts";
import { multiQuantizedMatmul } from "./multi_quantized_matmul.ts";
import { quantizedMatmulSwiglu } from "./quantized_matmul_swiglu.ts";

/** What calls of quantizedMatmul must have in common: all matrices of one call are quantized alike. */
const SHARED = ["x", "outDtype", "approximate", "bits", "groupSize", "mode"] as const;
const sharedBy = (first: string, others: readonly string[]) =>
  Object.fromEntries(others.flatMap((name) => SHARED.map((what) => [`${name}.${what}`, `${first}.${what}`])));
/** The index inputs of calls of gatherQuantizedMatmul. */
const INDICES = ["rhsIndices", "lhsIndices", "order", "offsets"];
const indicesAs = (name: string) => Object.fromEntries(INDICES.map((input) => [input, `${name}.${input}`]));
const transposed = (names: readonly string[]) => Object.fromEntries(names.map((name) => [`${name}.transpose`, [true]]));

/** Two to four products of one x, the most first: they are tried in this order. */
const products = ([4, 3, 2] as const).map((count) => {
  const names = ["a", "b", "c", "d"].slice(0, count);
  const pairs = (text: (name: string) => [string, string]) => Object.fromEntries(names.map(text));
  return defineFusion({
    calls: pairs((name) => [name, "quantizedMatmul"]),
    same: sharedBy("a", names.slice(1)),
    into: multiQuantizedMatmul,
    tensors: {
      x: "a.x",
      ...pairs((name) => [name, `${name}.q`]),
      ...pairs((name) => [`out${name.toUpperCase()}`, `${name}.out`]),
    },
    options: { outDtype: "a.outDtype", approximate: "a.approximate" },
    when: transposed(names),
  });
});

/** For `device.encoder({ optimize: { fuse } })`. The op `swiglu` is known by name: that of any package. */
export const quant4Fusions = [
  defineFusion({
    calls: { gate: "quantizedMatmul", up: "quantizedMatmul", unit: "swiglu" },
    links: { "unit.gate": "gate.out", "unit.up": "up.out" },
    same: sharedBy("gate", ["up"]),
    into: quantizedMatmulSwiglu,
    tensors: { x: "gate.x", gate: "gate.q", up: "up.q", out: "unit.out" },
    options: { outDtype: "gate.outDtype", approximate: "gate.approximate" },
    when: transposed(["gate", "up"]),
  }),
  defineFusion({
    calls: { gate: "gatherQuantizedMatmul", up: "gatherQuantizedMatmul", unit: "swiglu" },
    links: { "unit.gate": "gate.out", "unit.up": "up.out" },
    same: {
      ...sharedBy("gate", ["up"]),
      ...Object.fromEntries(INDICES.map((input) => [`up.${input}`, `gate.${input}`])),
    },
    into: gatherQuantizedMatmulSwiglu,
    tensors: { x: "gate.x", gate: "gate.q", up: "up.q", ...indicesAs("gate"), out: "unit.out" },
    options: { outDtype: "gate.outDtype", approximate: "gate.approximate" },
  }),
  ...products,
];
