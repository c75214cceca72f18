import type { Place } from "./errors.ts";

/** A token of preprocessed text. `before` is the white space and the `#` lines in front of it. */
export interface Token extends Place {
  before: string;
  text: string;
}

export interface Tokens {
  tokens: Token[];
  /** White space behind the last token. */
  tail: string;
  /** Arguments of `#pragma metal_sim_include`: which of Metal's headers were included. */
  includes: Set<string>;
  /** Arguments of `#pragma metal_sim_only`: the kernels to compile; none: all. */
  only: Set<string>;
}

const TOKEN =
  /[A-Za-z_]\w*|(?:\d|\.\d)(?:[eEpP][+-]|'?[\w.])*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|::|->|<<=|>>=|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|<<|./suy;
const MARKER = /^#\s*(?:line\s+)?(\d+)\s+"((?:\\.|[^"\\])*)"/;
const PRAGMA = /^#pragma\s+metal_sim_(include|only|translation)\s+([\w ]+)/;

/** Splits preprocessed text; line markers tell where each token stands in the source. `>>` is two tokens. */
export function tokenize(text: string): Tokens {
  const tokens: Token[] = [];
  const includes = new Set<string>();
  const only = new Set<string>();
  let file = "";
  let line = 1;
  let before = "";
  for (let at = 0; at < text.length; ) {
    const lineStart = at === 0 || text[at - 1] === "\n";
    const directive = lineStart
      ? /^[ \t]*(#[^\n]*)/.exec(text.slice(at, text.indexOf("\n", at) + 1 || undefined))
      : null;
    if (directive) {
      const marker = MARKER.exec(directive[1] as string);
      const [, pragma, words = ""] = PRAGMA.exec(directive[1] as string) ?? [];
      if (pragma === "only" || pragma === "include")
        for (const word of words.split(" ").filter(Boolean)) (pragma === "only" ? only : includes).add(word);
      if (!pragma) before += directive[0];
      at += directive[0].length;
      if (marker) {
        // The marker gives the line after it.
        line = Number(marker[1]) - 1;
        file = (marker[2] as string).replace(/\\(.)/g, "$1");
      }
      continue;
    }
    const c = text[at] as string;
    if (/\s/.test(c)) {
      before += c;
      if (c === "\n") line++;
      at++;
      continue;
    }
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text)?.[0] ?? c;
    tokens.push({ before, text: found, file, line });
    before = "";
    at += found.length;
  }
  return { tokens, tail: before, includes, only };
}

export const isWord = (token: Token | undefined): token is Token =>
  token !== undefined && /^[A-Za-z_]/.test(token.text);

const CLOSE: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

/** Index of the bracket that closes the one at `open`; -1 if there is none. */
export function closing(tokens: readonly Token[], open: number): number {
  const want: string[] = [];
  for (let i = open; i < tokens.length; i++) {
    const text = tokens[i]?.text ?? "";
    const close = CLOSE[text];
    if (close) want.push(close);
    else if (text === want.at(-1)) {
      want.pop();
      if (want.length === 0) return i;
    }
  }
  return -1;
}

/** Index of the `>` that closes the `<` at `open`; -1 if it is no template bracket. */
export function closingAngle(tokens: readonly Token[], open: number): number {
  let depth = 0;
  for (let i = open; i < tokens.length; i++) {
    const text = tokens[i]?.text ?? "";
    if (text === "<") depth++;
    else if (text === ">" && --depth === 0) return i;
    else if (CLOSE[text]) {
      i = closing(tokens, i);
      if (i < 0) return -1;
    } else if (text === ";" || text === ")" || text === "}") return -1;
  }
  return -1;
}

/** The ranges between commas outside brackets, of [begin, end). */
export function splitCommas(tokens: readonly Token[], begin: number, end: number): [begin: number, end: number][] {
  const parts: [number, number][] = [];
  let from = begin;
  for (let i = begin; i < end; i++) {
    const text = tokens[i]?.text ?? "";
    const close = CLOSE[text] ? closing(tokens, i) : text === "<" ? closingAngle(tokens, i) : -1;
    if (close > 0 && close < end) i = close;
    else if (text === ",") {
      parts.push([from, i]);
      from = i + 1;
    }
  }
  if (from < end) parts.push([from, end]);
  return parts;
}

/** Source text of tokens on one line. */
export function spell(tokens: readonly Token[], begin: number, end: number): string {
  let out = "";
  for (let i = begin; i < end; i++) {
    const { text, before } = tokens[i] as Token;
    out += out && before ? ` ${text}` : text;
  }
  return out;
}

export const unparse = ({ tokens, tail }: Tokens) => tokens.map(({ before, text }) => before + text).join("") + tail;
