import type { Place } from "./errors.ts";
import { closing, spell, splitCommas, type Token } from "./tokens.ts";

/** `[[name(arguments)]]`. */
export interface Attribute extends Place {
  name: string;
  /** Text between the parentheses, or "". */
  value: string;
  text: string;
}

/** Where an attribute list `[[…]]` starts. */
export const opensAttributes = (tokens: readonly Token[], i: number) =>
  tokens[i]?.text === "[" && tokens[i + 1]?.text === "[";

/** The attributes of the list at `open`, and the index behind it. */
export function readAttributes(tokens: readonly Token[], open: number): { attributes: Attribute[]; end: number } {
  const outer = closing(tokens, open);
  const inner = closing(tokens, open + 1);
  if (outer < 0 || inner !== outer - 1) return { attributes: [], end: open + 1 };
  const attributes = splitCommas(tokens, open + 2, inner).map(([begin, end]): Attribute => {
    let paren = begin;
    while (paren < end && tokens[paren]?.text !== "(") paren++;
    const { file, line } = tokens[begin] as Token;
    const value = paren < end ? spell(tokens, paren + 1, end - 1) : "";
    return { name: spell(tokens, begin, paren), value, text: spell(tokens, begin, end), file, line };
  });
  return { attributes, end: outer + 1 };
}

/** All attributes directly in [begin, end), outside other brackets. */
export function attributesWithin(tokens: readonly Token[], begin: number, end: number): Attribute[] {
  const found: Attribute[] = [];
  for (let i = begin; i < end; i++)
    if (opensAttributes(tokens, i)) {
      const list = readAttributes(tokens, i);
      found.push(...list.attributes);
      i = list.end - 1;
    } else if (tokens[i]?.text === "(" || tokens[i]?.text === "{") {
      const close = closing(tokens, i);
      if (close > 0) i = close;
    }
  return found;
}

/** Empties the tokens of every attribute that `drop` accepts; it gets the index of the list. Line markers stay. */
export function stripAttributes(tokens: readonly Token[], drop: (attribute: Attribute, i: number) => boolean): void {
  for (let i = 0; i < tokens.length; i++) {
    if (!opensAttributes(tokens, i)) continue;
    const { attributes, end } = readAttributes(tokens, i);
    const keep = attributes.filter((attribute) => !drop(attribute, i));
    if (keep.length < attributes.length) {
      for (let k = i; k < end; k++) (tokens[k] as Token).text = "";
      if (keep.length > 0) (tokens[i] as Token).text = `[[${keep.map(({ text }) => text).join(", ")}]]`;
    }
    i = end - 1;
  }
}
