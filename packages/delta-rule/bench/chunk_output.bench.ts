import { chunkOutput } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT, K, V } = SIZES;

// q hᵀ, and the scores in the lower triangle times vNew.
export default stageBench(
  "chunkOutput",
  ["q", "k", "vNew", "h", "G", "o"],
  2 * BT * K * V + BT * (BT + 1) * (K + V),
  (encoder, tensors) => chunkOutput(encoder, tensors, { scale: K ** -0.5 }),
);
