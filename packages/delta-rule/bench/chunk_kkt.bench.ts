import { chunkKkt } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT, K } = SIZES;

// Scores below the diagonal.
export default stageBench("chunkKkt", ["k", "beta", "G", "A"], BT * (BT - 1) * K, chunkKkt);
