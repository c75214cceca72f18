// Rules by which calls of this package's ops become one. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { gatherMatmulSwiglu } from "./gather_matmul_swiglu.ts";
import { matmulSwiglu } from "./matmul_swiglu.ts";
import { multiMatmul } from "./multi_matmul.ts";
import { split } from "./split.ts";

/** Two to four products of one x, the most first: they are tried in this order. */
const products = ([4, 3, 2] as const).map((count) => {
  const names = ["a", "b", "c", "d"].slice(0, count);
  const pairs = (text: (name: string) => [string, string]) => Object.fromEntries(names.map(text));
  return defineFusion({
    calls: pairs((name) => [name, "matmul"]),
    same: Object.fromEntries(
      names.slice(1).flatMap((name) => [
        [`${name}.x`, "a.x"],
        [`${name}.outDtype`, "a.outDtype"],
      ]),
    ),
    into: multiMatmul,
    tensors: {
      x: "a.x",
      ...pairs((name) => [name, `${name}.weight`]),
      ...pairs((name) => [`out${name.toUpperCase()}`, `${name}.out`]),
    },
    options: { outDtype: "a.outDtype" },
    when: Object.fromEntries(names.map((name) => [`${name}.transpose`, [true]])),
  });
});

/** Two to four slices of one x. */
const slices = ([4, 3, 2] as const).map((count) => {
  const names = ["A", "B", "C", "D"].slice(0, count);
  const entries = (of: (name: string) => [string, string][]) => Object.fromEntries(names.flatMap(of));
  return defineFusion({
    calls: entries((name) => [[name, "slice"]]),
    same: Object.fromEntries(names.slice(1).map((name) => [`${name}.x`, "A.x"])),
    into: split,
    tensors: { x: "A.x", ...entries((name) => [[`out${name}`, `${name}.out`]]) },
    options: entries((name) => [
      [`begin${name}`, `${name}.begin`],
      [`size${name}`, `${name}.size`],
    ]),
  });
});

/** For `device.encoder({ optimize: { fuse } })`. */
export const nnFusions = [
  defineFusion({
    calls: { gate: "gatherMatmul", up: "gatherMatmul", unit: "swiglu" },
    links: { "unit.gate": "gate.out", "unit.up": "up.out" },
    same: Object.fromEntries(
      ["x", "rhsIndices", "lhsIndices", "order", "offsets", "rows", "outDtype"].map((name) => [
        `up.${name}`,
        `gate.${name}`,
      ]),
    ),
    into: gatherMatmulSwiglu,
    tensors: {
      x: "gate.x",
      gate: "gate.weight",
      up: "up.weight",
      rhsIndices: "gate.rhsIndices",
      lhsIndices: "gate.lhsIndices",
      gateStarts: "gate.starts",
      upStarts: "up.starts",
      order: "gate.order",
      offsets: "gate.offsets",
      out: "unit.out",
    },
    options: { rows: "gate.rows", outDtype: "gate.outDtype" },
  }),
  defineFusion({
    calls: { gate: "matmul", up: "matmul", unit: "swiglu" },
    links: { "unit.gate": "gate.out", "unit.up": "up.out" },
    same: { "up.x": "gate.x", "up.outDtype": "gate.outDtype" },
    into: matmulSwiglu,
    tensors: { x: "gate.x", gate: "gate.weight", up: "up.weight", out: "unit.out" },
    options: { outDtype: "gate.outDtype" },
    when: { "gate.transpose": [true], "up.transpose": [true] },
  }),
  ...products,
  ...slices,
];
