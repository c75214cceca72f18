import { chunkWu } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT, K, V } = SIZES;

// X has a lower triangle.
export default stageBench("chunkWu", ["k", "v", "beta", "G", "X", "w", "u"], BT * (BT + 1) * (K + V), chunkWu);
