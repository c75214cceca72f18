import type { OptimizeOptions } from "@mlxts/core";
import { deltaFusions } from "@mlxts/delta-rule";
import { mlaFusions } from "@mlxts/mla";
import { moeFusions } from "@mlxts/moe";
import { nnFusions } from "@mlxts/nn";
import { normFusions } from "@mlxts/norms";
import { quant4Fusions } from "@mlxts/quant4";

/** What is done to recordings of decode steps; `MLXTS_FUSE=0` turns it off. Results stay the same, to the bit. */
export const OPTIMIZE: OptimizeOptions = {
  fuse: [...deltaFusions, ...normFusions, ...nnFusions, ...quant4Fusions, ...mlaFusions, ...moeFusions],
};

/** The same for passes over prompts, which are recorded for one run: rules that save as much time as looking for them takes. */
export const OPTIMIZE_PROMPT: OptimizeOptions = { fuse: [...normFusions, ...moeFusions] };
