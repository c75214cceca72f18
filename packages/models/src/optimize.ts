import type { Fusion, OptimizeOptions } from "@mlxts/core";
import { moeFusions } from "@mlxts/moe";
import { nnFusions } from "@mlxts/nn";
import { normFusions } from "@mlxts/norms";
import { quant4Fusions } from "@mlxts/quant4";

/**
 * What is done to recordings of decode steps; `MLXTS_FUSE=0` turns it off. Results stay the same, to the bit. `own`: rules for
 * the ops that only the model's family uses.
 */
export const optimizeSteps = (own: readonly Fusion[]): OptimizeOptions => ({
  fuse: [...own, ...normFusions, ...nnFusions, ...quant4Fusions, ...moeFusions],
});

/** The same for passes over prompts, which are recorded for few runs: rules that save as much time as looking for them takes. */
export const OPTIMIZE_PROMPT: OptimizeOptions = { fuse: [...normFusions, ...moeFusions] };
