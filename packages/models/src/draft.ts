import { checkOptionNames, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";

/** Guesses up to `most` tokens that follow `ids`, the whole text so far. The result may be empty. */
export type Draft = (ids: readonly number[], most: number) => readonly number[];

export interface PromptLookupOptions {
  /** The most tokens at the end of the text that are searched for earlier in it. Default 3. */
  longest?: number;
  /** The fewest. Default 2. */
  shortest?: number;
}

/**
 * Guesses that the text repeats itself: searches for its last tokens earlier in it, for as many as possible first, from
 * the end backwards, and proposes the tokens that followed there. This takes no model, and is right often in code,
 * quotations and edits.
 */
export function promptLookup(options: PromptLookupOptions = {}): Draft {
  checkOptionNames("promptLookup", options, { longest: true, shortest: true });
  const { longest = 3, shortest = 2 } = options;
  checkInteger("promptLookup", "longest", longest, 1);
  checkInteger("promptLookup", "shortest", shortest, 1);
  if (shortest > longest) throw wrongValue("promptLookup", "shortest", `be at most longest (${longest})`, shortest);
  return (ids, most) => {
    for (let size = Math.min(longest, ids.length - 1); size >= shortest; size--) {
      const tail = ids.length - size;
      for (let at = tail - 1; at >= 0; at--) {
        let same = 0;
        while (same < size && ids[at + same] === ids[tail + same]) same++;
        if (same === size) return ids.slice(at + size, at + size + most);
      }
    }
    return [];
  };
}
