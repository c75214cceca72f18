/** The noncharacters U+FDD0 to U+FDEF, which texts for interchange do not have, and then some private ones. */
function* candidates(): Generator<string> {
  for (let code = 0xfdd0; code <= 0xfdef; code++) yield String.fromCharCode(code);
  for (let code = 0xf8ff; code >= 0xe000; code--) yield String.fromCharCode(code);
}

const MAX_DEPTH = 64;

/** All texts of a value, keys included. */
function* textsOf(value: unknown, depth = 0): Generator<string> {
  if (typeof value === "string") yield value;
  else if (value !== null && typeof value === "object" && depth < MAX_DEPTH)
    for (const [key, inner] of Object.entries(value)) {
      yield key;
      yield* textsOf(inner, depth + 1);
    }
}

/** A character that is in none of the texts of a value, nor can be when its JSON is parsed. */
export function unusedMark(value: unknown): string {
  const used = new Set<string>();
  for (const text of textsOf(value)) {
    for (const [char] of text.matchAll(/[\ue000-\uf8ff\ufdd0-\ufdef]/g)) used.add(char);
    for (const [, code] of text.matchAll(/\\u([0-9a-fA-F]{4})/g))
      used.add(String.fromCharCode(Number.parseInt(code as string, 16)));
  }
  for (const mark of candidates()) if (!used.has(mark)) return mark;
  throw new RangeError("the messages use every private character");
}

/** What a block of reasoning at the beginning of an assistant's message looks like. */
const REASONING = /^\s*(?:<think>)?(?:(?!<\/?think>)[\s\S])*<\/think>/;

/**
 * Puts `mark` after the first character of every text of a token within the texts of a value, and of every beginning of
 * one at an end of a text, which the following text could complete. The value itself stays as it is.
 */
export function withMarks(value: unknown, tokens: readonly string[], mark: string): unknown {
  const marker = new Marker(tokens, mark);
  return marker.value(value, 0);
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

  constructor(tokens: readonly string[], mark: string) {
    this.tokens = tokens;
    this.mark = mark;
    this.firsts = new Set(tokens.map((token) => token[0] as string));
  }

  value(value: unknown, depth: number): unknown {
    if (typeof value === "string") return this.text(value);
    if (value === null || typeof value !== "object" || depth >= MAX_DEPTH) return value;
    if (Array.isArray(value)) return value.map((item) => this.value(item, depth + 1));
    if (Object.getPrototypeOf(value) !== Object.prototype && Object.getPrototypeOf(value) !== null) return value;
    const isAssistant = (value as Record<string, unknown>).role === "assistant";
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => {
        const keepsReasoning = isAssistant && key === "content" && typeof inner === "string";
        // Templates may parse the JSON text of arguments, in which `\u003c` is `<`.
        const plain = key === "arguments" && typeof inner === "string" ? withoutEscapes(inner) : inner;
        const changed = keepsReasoning ? this.afterReasoning(inner) : this.value(plain, depth + 1);
        return [this.text(key), changed];
      }),
    );
  }

  /** Leaves the tags of reasoning at the beginning as they are, and marks what is between and after them. */
  private afterReasoning(text: string): string {
    const block = REASONING.exec(text)?.[0];
    if (block === undefined) return this.text(text);
    const open = /^\s*<think>/.exec(block)?.[0] ?? "";
    const inner = block.slice(open.length, -"</think>".length);
    return `${open}${this.text(inner)}</think>${this.text(text.slice(block.length))}`;
  }

  private text(text: string): string {
    const { tokens, mark, firsts } = this;
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
