// Trees of new tokens, and their masks.
import type { CaseInput, Reference64 } from "@mlxts/core/testing";

/** Of each new token, the new tokens that it sees. */
export type Tree = readonly (readonly number[])[];

/** Token 0 begins two branches, 1 → 3 and 2 → 4. */
export const TREE: Tree = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]];

/** Every token sees itself and every third one before it. */
export const comb = (L: number): Tree =>
  Array.from({ length: L }, (_, i) => Array.from({ length: i + 1 }, (_, j) => j).filter((j) => (i - j) % 3 === 0));

/** The mask of a tree. The bits behind its tokens, which mean nothing, are set. */
export function treeMask(tree: Tree): { dtype: "u32"; shape: number[]; data: Uint32Array } & CaseInput {
  const L = tree.length;
  const words = Math.ceil(L / 32);
  const bits = Array.from({ length: L * words * 32 }, (_, at) => {
    const j = at % (words * 32);
    return j >= L || (tree[Math.floor(at / (words * 32))] as readonly number[]).includes(j);
  });
  const data = new Uint32Array(L * words);
  for (const [at, bit] of bits.entries()) if (bit) data[at >> 5] = ((data[at >> 5] as number) | (1 << (at & 31))) >>> 0;
  return { dtype: "u32", shape: [L, words], data };
}

/** Whether token i sees token j, of a mask. */
export function treeOf({ shape, data }: Reference64): (i: number, j: number) => boolean {
  const words = shape[1] as number;
  return (i, j) => (((data[i * words + (j >> 5)] as number) / 2 ** (j & 31)) & 1) === 1;
}
