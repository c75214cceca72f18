import { chunkState } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT, K, V } = SIZES;

// w Sᵀ and the update.
export default stageBench("chunkState", ["k", "w", "u", "G", "initialState", "h", "vNew"], 4 * BT * K * V, chunkState);
