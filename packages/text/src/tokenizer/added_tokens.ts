import { isWhitespace, trimmedEnd, WHITESPACE_AT_START } from "./characters.ts";
import type { Normalizer } from "./normalizers.ts";
import { PrefixTable } from "./prefix_table.ts";
import { isObject, type Refuse } from "./step_fields.ts";
import type { Work } from "./work.ts";

/** A token that is found in texts before they are split: see the fields of the same names in `tokenizers`. */
export interface AddedToken {
  content: string;
  id: number;
  singleWord: boolean;
  lstrip: boolean;
  rstrip: boolean;
  normalized: boolean;
  special: boolean;
}

/** A part of a text: an added token's id, or −1 for plain text. */
export interface Segment {
  start: number;
  end: number;
  id: number;
}

export function readAddedTokens(value: unknown, refuse: Refuse): AddedToken[] {
  if (!Array.isArray(value ?? [])) throw refuse("added_tokens", "be a list");
  return ((value ?? []) as unknown[]).map((entry) => {
    if (!isObject(entry) || entry.content === "") throw refuse("added_tokens", "be objects with `content` and `id`");
    const flag = (name: string, fallback = false) => {
      const given = entry[name] ?? fallback;
      if (typeof given !== "boolean") throw refuse(`added_tokens.${name}`, "be true or false");
      return given;
    };
    const special = flag("special");
    return {
      content: entry.content as string,
      id: entry.id as number,
      singleWord: flag("single_word"),
      lstrip: flag("lstrip"),
      rstrip: flag("rstrip"),
      normalized: flag("normalized", !special),
      special,
    };
  });
}

const WORD = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

/** Finds added tokens in a text: those that begin first, of these the longest. */
export class AddedTokenFinder {
  private readonly table: PrefixTable;
  private readonly tokens: readonly AddedToken[];
  /** Whether a UTF-16 unit begins a token. */
  private readonly begins = new Uint8Array(0x10000);

  /** @param normalize what to do with their contents first */
  constructor(tokens: readonly AddedToken[], normalize: (content: string) => string) {
    this.tokens = tokens;
    this.table = new PrefixTable(tokens.reduce((sum, { content }) => sum + content.length, 0));
    for (let index = tokens.length - 1; index >= 0; index--) {
      const content = normalize((tokens[index] as AddedToken).content.toWellFormed());
      if (content === "") continue;
      this.table.add(content, index);
      this.begins[content.charCodeAt(0)] = 1;
    }
  }

  /** The segments of a text, in order. */
  segments(text: string, work: Work): Segment[] {
    const segments: Segment[] = [];
    if (this.tokens.length === 0) return text === "" ? [] : [{ start: 0, end: text.length, id: -1 }];
    let from = 0;
    let covered = 0;
    for (;;) {
      const match = this.find(text, from, work);
      if (match === undefined) break;
      from = match.end;
      const token = this.tokens[match.index] as AddedToken;
      if (token.singleWord && (endsWithWord(text, match.start) || WORD.test(text.slice(match.end, match.end + 2))))
        continue;
      let { start, end } = match;
      if (token.lstrip) start = Math.max(covered, trimmedEnd(text.slice(covered, start)) + covered);
      if (token.rstrip) end += WHITESPACE_AT_START.exec(text.slice(end))?.[0].length ?? 0;
      if (covered < start) segments.push({ start: covered, end: start, id: -1 });
      segments.push({ start, end, id: token.id });
      covered = end;
    }
    if (covered < text.length) segments.push({ start: covered, end: text.length, id: -1 });
    return segments;
  }

  private find(text: string, from: number, work: Work): { start: number; end: number; index: number } | undefined {
    const { table, begins } = this;
    for (let start = from; start < text.length; start++) {
      if (begins[text.charCodeAt(start)] === 0) continue;
      let node = 0;
      let index = -1;
      let end = start;
      let at = start;
      while (at < text.length) {
        node = table.child(node, text.charCodeAt(at++));
        if (node === -1) break;
        if (table.value(node) === -1) continue;
        index = table.value(node);
        end = at;
      }
      work.spend(1 + at - start);
      if (index !== -1) return { start, end, index };
    }
    return undefined;
  }
}

function endsWithWord(text: string, end: number): boolean {
  if (end === 0) return false;
  const unit = text.charCodeAt(end - 1);
  return WORD.test(text.slice(unit >= 0xdc00 && unit < 0xe000 ? end - 2 : end - 1, end));
}

/** Added tokens whose content is matched as it is, and those that are matched in normalized text. */
export class AddedTokens {
  readonly plain: AddedTokenFinder;
  readonly normalized: AddedTokenFinder;

  constructor(tokens: readonly AddedToken[], normalizer: Normalizer, work: Work) {
    const as = (content: string) => content;
    this.plain = new AddedTokenFinder(
      tokens.filter(({ normalized }) => !normalized),
      as,
    );
    this.normalized = new AddedTokenFinder(
      tokens.filter(({ normalized }) => normalized),
      (content) => normalizer(content, work),
    );
  }
}

/**
 * Whether an added token controls the model rather than being a piece of text: it is special, has the form `<|…|>`, or the
 * checkpoint's chat templates write it.
 */
export function isControlToken({ content, special }: AddedToken, templates: readonly string[]): boolean {
  if (special || /^<[|｜].*[|｜]>$/s.test(content)) return true;
  const isBlank = [...content].every((char) => isWhitespace(char) || char === "▁");
  return !isBlank && templates.some((template) => template.includes(content));
}
