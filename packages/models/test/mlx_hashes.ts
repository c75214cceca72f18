// What mlx_lm.convert writes, recorded as hashes: fixtures/README.md says how.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensors } from "@mlxts/core";
import { fixture } from "@mlxts/test-kit/goldens";
import { bits } from "./fixtures.ts";

export type Hashes = Record<string, { dtype: string; shape: number[]; sha256: string }>;

/** A checkpoint that mlx_lm.convert has made with these settings. */
export interface Conversion {
  bits: 4 | 8;
  group_size: 32 | 64 | 128;
  /** What its `config.json` says of them, where it was recorded. */
  quantization?: Record<string, unknown>;
  tensors: Hashes;
}

/** The conversions of a file of hashes by their names. */
export const conversions = (file: string): Record<string, Conversion> =>
  JSON.parse(readFileSync(fixture(`goldens/${file}`), "utf8")).variants;

/** The tensors of a checkpoint's file in the form of `Conversion.tensors`. */
export const hashesOf = (folder: string, file = "model.safetensors"): Hashes =>
  Object.fromEntries(
    [...readSafetensors(join(folder, file)).tensors].map(([name, { dtype, shape, data }]) => [
      name,
      { dtype: dtype.toUpperCase(), shape: [...shape], sha256: bits(data) },
    ]),
  );
