import { QUANTIZED } from "@mlxts/core";
import type { Quantized } from "./signatures.ts";

export type { Quantized };
/** Bits of a code that the layout of whole words offers. */
export type Bits = Quantized["bits"];
/** Columns that share a scale and a bias. */
export type GroupSize = Quantized["groupSize"];

export const BITS: readonly Bits[] = QUANTIZED.attributes.bits.values;
export const GROUP_SIZES: readonly GroupSize[] = QUANTIZED.attributes.groupSize.values;

/** Launch rules of kernels that go by words of codes: a threadgroup to a row; on a GPU a thread to a word, up to 256. */
export const WORD_LAUNCH = {
  cpu: ({ rows }: { rows: number; words: number }) => ({ threadgroups: [rows, 1, 1] as const }),
  gpu: ({ rows, words }: { rows: number; words: number }) => ({
    threadgroups: [rows, 1, 1] as const,
    threadsPerThreadgroup: [Math.min(256, Math.ceil(words / 32) * 32), 1, 1] as const,
  }),
};

/** All combinations of words, joined by `_`: the variants of a kernel. */
export function combinations(...parts: readonly (readonly string[])[]): string[] {
  return parts.reduce<string[]>(
    (all, part) => all.flatMap((head) => part.map((word) => (head ? `${head}_${word}` : word))),
    [""],
  );
}
