export { mlaCacheAppend } from "./mla_cache_append.ts";
export { mlaSplit } from "./mla_split.ts";
export { ropeYarn } from "./rope_yarn.ts";
export { type Rotary, rotaryTable, type YarnOptions, yarnRotary } from "./rotary.ts";
export type * from "./signatures.ts";
