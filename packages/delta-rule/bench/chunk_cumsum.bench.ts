import { chunkCumsum } from "../src/index.ts";
import { SIZES, stageBench } from "./chunk_stages.ts";

const { BT } = SIZES;

// One addition a token.
export default stageBench("chunkCumsum", ["g", "G"], BT, chunkCumsum, ["f32"]);
