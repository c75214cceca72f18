// Rules by which calls of this package's ops become one. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { ropeYarnPair } from "./rope_yarn_pair.ts";

/** For `device.encoder({ optimize: { fuse } })`. */
export const mlaFusions = [
  defineFusion({
    calls: { q: "ropeYarn", k: "ropeYarn" },
    same: { "k.positions": "q.positions", "k.table": "q.table", "k.pairing": "q.pairing" },
    into: ropeYarnPair,
    tensors: {
      q: "q.x",
      k: "k.x",
      positions: "q.positions",
      table: "q.table",
      outQ: "q.out",
      outK: "k.out",
    },
    options: { firstQ: "q.first", firstK: "k.first", pairing: "q.pairing" },
  }),
];
