import { chunkInverse } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT } = SIZES;

// Forward substitution.
export default stageBench("chunkInverse", ["A", "X"], BT ** 3 / 3, chunkInverse, ["f32"]);
