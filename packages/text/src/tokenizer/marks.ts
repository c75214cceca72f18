import { MlxtsError } from "@mlxts/common/errors";

/** The noncharacters U+FDD0 to U+FDEF, which texts for interchange do not have, and then some private ones. */
function* candidates(): Generator<string> {
  for (let code = 0xfdd0; code <= 0xfdef; code++) yield String.fromCharCode(code);
  for (let code = 0xf8ff; code >= 0xe000; code--) yield String.fromCharCode(code);
}

/** Templates take no values that nest deeper. */
const MAX_DEPTH = 400;
/** Values within each other are counted as often as they are reached. */
const MAX_VALUES = 1 << 22;

const tooMuch = (reason: string) => new MlxtsError("LimitExceeded", `the messages and variables ${reason}`, { reason });

/** A value as templates read it: objects of classes by their fields or `toJSON`, and neither cycles nor endless depth. */
export function plainValue(given: unknown): unknown {
  let values = 0;
  const plain = (value: unknown, depth: number): unknown => {
    if (value === null || typeof value !== "object") return value;
    if (depth >= MAX_DEPTH) throw tooMuch("nest too deeply");
    if (++values > MAX_VALUES) throw tooMuch(`have more than ${MAX_VALUES} values`);
    if (Array.isArray(value)) return Array.from(value, (item) => plain(item, depth + 1));
    if (value instanceof Map)
      return new Map(Array.from(value, ([key, item]) => [plain(key, depth + 1), plain(item, depth + 1)]));
    const { toJSON } = value as { toJSON?: unknown };
    if (typeof toJSON === "function") return plain(toJSON.call(value), depth + 1);
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item, depth + 1)]));
  };
  return plain(given, 0);
}

/** All texts of a plain value, keys included. */
function* textsOf(value: unknown): Generator<string> {
  if (typeof value === "string") yield value;
  else if (value !== null && typeof value === "object")
    for (const [key, inner] of value instanceof Map ? value : Object.entries(value)) {
      yield* textsOf(key);
      yield* textsOf(inner);
    }
}

/** A character that is in none of the texts of a plain value, nor can be when its JSON is parsed. */
export function unusedMark(value: unknown): string {
  const used = new Set<string>();
  for (const text of textsOf(value)) {
    for (const [char] of text.matchAll(/[\ue000-\uf8ff\ufdd0-\ufdef]/g)) used.add(char);
    for (const [, code] of text.matchAll(/u([0-9a-fA-F]{4})/g))
      used.add(String.fromCharCode(Number.parseInt(code as string, 16)));
  }
  for (const mark of candidates()) if (!used.has(mark)) return mark;
  throw tooMuch("use every private character");
}

/** Tokens that are found in normalized text, as they are found there. */
export interface NormalizedTokens {
  readonly contents: readonly string[];
  readonly normalize: (text: string) => string;
}

/** Tags of a block of reasoning at the beginning of an assistant's message. */
const [OPEN, CLOSE] = ["<think>", "</think>"] as const;

/**
 * Puts `mark` after the first character of every text of a token within the texts of a value, and of every beginning of
 * one at an end of a text, which the following text could complete; and after every character of a text that is normalized
 * to one with a token. The value itself, a plain one, stays as it is.
 */
export function withMarks(
  value: unknown,
  tokens: readonly string[],
  mark: string,
  normalized: NormalizedTokens,
): unknown {
  return new Marker(tokens, mark, normalized).value(value);
}

/** JSON text with printable ASCII, and letters and signs beyond it, as they are instead of as `\uXXXX`. */
const withoutEscapes = (json: string) =>
  json.replace(/\\(?:u([0-9a-fA-F]{4})|[\s\S])/g, (written, code: string | undefined) => {
    const char = code === undefined ? "" : String.fromCharCode(Number.parseInt(code, 16));
    return /^[^\p{C}"\\]$/u.test(char) ? char : written;
  });

class Marker {
  private readonly tokens: readonly string[];
  private readonly mark: string;
  private readonly firsts: ReadonlySet<string>;
  private readonly normalized: NormalizedTokens;

  constructor(tokens: readonly string[], mark: string, normalized: NormalizedTokens) {
    this.tokens = tokens;
    this.mark = mark;
    this.normalized = normalized;
    this.firsts = new Set(tokens.map((token) => token[0] as string));
  }

  value(value: unknown): unknown {
    if (typeof value === "string") return this.text(value);
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((item) => this.value(item));
    const isMap = value instanceof Map;
    const fields: [unknown, unknown][] = isMap ? [...value] : Object.entries(value);
    const isAssistant = fields.some(([key, inner]) => key === "role" && inner === "assistant");
    const marked = fields.map(([key, inner]): [unknown, unknown] => {
      const keepsReasoning = isAssistant && key === "content" && typeof inner === "string";
      // Templates may parse the JSON text of arguments, in which `\u003c` is `<`.
      const plain = key === "arguments" && typeof inner === "string" ? withoutEscapes(inner) : inner;
      return [this.value(key), keepsReasoning ? this.afterReasoning(inner as string) : this.value(plain)];
    });
    return isMap ? new Map(marked) : Object.fromEntries(marked as [string, unknown][]);
  }

  /** Leaves the tags of reasoning at the beginning as they are, and marks what is between and after them. */
  private afterReasoning(text: string): string {
    const begin = text.length - text.trimStart().length;
    const from = text.startsWith(OPEN, begin) ? begin + OPEN.length : begin;
    const close = text.indexOf(CLOSE, from);
    if (close < 0) return this.text(text);
    const inner = text.slice(from, close);
    if (inner.includes(OPEN)) return this.text(text);
    return `${text.slice(0, from)}${this.text(inner)}${CLOSE}${this.text(text.slice(close + CLOSE.length))}`;
  }

  /** Whether a text holds a token once it is normalized, or ends with the beginning of one. */
  private becomesToken(text: string): boolean {
    const { contents, normalize } = this.normalized;
    if (contents.length === 0) return false;
    const normal = normalize(text);
    return contents.some((token) => {
      if (normal.includes(token)) return true;
      for (let length = Math.min(token.length - 1, normal.length); length > 0; length--)
        if (normal.endsWith(token.slice(0, length))) return true;
      return false;
    });
  }

  private text(text: string): string {
    const { tokens, mark, firsts } = this;
    if (this.becomesToken(text)) return [...text, ""].join(mark);
    const end = text.trimEnd().length;
    const parts: string[] = [];
    let last = 0;
    for (let at = 0; at < text.length; at++) {
      if (!firsts.has(text[at] as string)) continue;
      const begins = tokens.some(
        (token) =>
          text.startsWith(token, at) ||
          (text.length - at < token.length && token.startsWith(text.slice(at))) ||
          (end > at && end - at < token.length && token.startsWith(text.slice(at, end))),
      );
      if (!begins) continue;
      const width = (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
      parts.push(text.slice(last, at + width), mark);
      last = at + width;
    }
    return parts.length === 0 ? text : parts.join("") + text.slice(last);
  }
}
