export { mlaAttention } from "./mla_attention.ts";
export { mlaCacheAppend } from "./mla_cache_append.ts";
export { mlaDecode } from "./mla_decode.ts";
export { mlaOut } from "./mla_out.ts";
export { mlaQPrime } from "./mla_q_prime.ts";
export { mlaSplit } from "./mla_split.ts";
export { ropeYarn } from "./rope_yarn.ts";
export { type Rotary, rotaryTable, type YarnOptions, yarnRotary } from "./rotary.ts";
export type * from "./signatures.ts";
