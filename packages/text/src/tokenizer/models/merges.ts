import type { ModelSource } from "./model.ts";
import { modelText } from "./model.ts";

const MAX_MERGES = 2 ** 24;

/** The merges of a BPE model: a hash table of (left id, right id) → rank, and the id of the merged token by rank. */
export class Merges {
  private mask = 15;
  private left = new Int32Array(16).fill(-1);
  private right = new Int32Array(16);
  private ranks = new Int32Array(16);
  private merged = new Int32Array(0);

  constructor(source: ModelSource) {
    const { json, vocabulary, refuse } = source;
    const { ids } = vocabulary;
    const list: unknown = json.merges ?? [];
    if (!Array.isArray(list) || list.length > MAX_MERGES) throw refuse("model.merges", "be a list");
    const prefix = modelText(source, "continuing_subword_prefix")?.length ?? 0;
    let capacity = 16;
    while (capacity < 2 * list.length) capacity *= 2;
    this.mask = capacity - 1;
    this.left = new Int32Array(capacity).fill(-1);
    this.right = new Int32Array(capacity);
    this.ranks = new Int32Array(capacity);
    this.merged = new Int32Array(list.length);
    const idOf = (token: string, rank: number) => {
      const id = ids.get(token);
      if (id === undefined)
        throw refuse(
          `model.merges[${rank}]`,
          `be of tokens of the vocabulary, got ${JSON.stringify(token.slice(0, 80))}`,
        );
      return id;
    };
    for (let rank = 0; rank < list.length; rank++) {
      const entry: unknown = list[rank];
      let left: unknown;
      let right: unknown;
      if (typeof entry === "string") {
        const space = entry.indexOf(" ");
        left = space < 0 ? undefined : entry.slice(0, space);
        right = entry.slice(space + 1);
        if ((right as string).includes(" ")) left = undefined;
      } else if (Array.isArray(entry) && entry.length === 2) [left, right] = entry as unknown[];
      if (typeof left !== "string" || typeof right !== "string")
        throw refuse(`model.merges[${rank}]`, "be two tokens with a space between, or a list of two");
      const place = this.placeOf(idOf(left, rank), idOf(right, rank));
      this.ranks[place] = rank;
      this.merged[rank] = idOf(left + (prefix === 0 ? right : right.slice(prefix)), rank);
    }
  }

  /** The rank of a pair, or −1. */
  rankOf(left: number, right: number): number {
    const { mask, left: lefts, right: rights } = this;
    let place = hashOf(left, right) & mask;
    for (;;) {
      const found = lefts[place] as number;
      if (found === -1) return -1;
      if (found === left && rights[place] === right) return this.ranks[place] as number;
      place = (place + 1) & mask;
    }
  }

  /** The token that the merge of a rank makes. */
  mergedAt(rank: number): number {
    return this.merged[rank] as number;
  }

  private placeOf(left: number, right: number): number {
    let place = hashOf(left, right) & this.mask;
    while (this.left[place] !== -1 && (this.left[place] !== left || this.right[place] !== right))
      place = (place + 1) & this.mask;
    this.left[place] = left;
    this.right[place] = right;
    return place;
  }
}

function hashOf(left: number, right: number): number {
  const hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
  return hash ^ (hash >>> 15);
}
