// Characters as Python has them: code points, and its own classes of white space and line ends.
import { unsupported } from "./faults.ts";

/** White space of `str.isspace`, `strip`, `split` and of `\s` in regular expressions, as a class for one. */
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const ONLY_SPACE = new RegExp(`^[${SPACE}]+$`);
const LEADING = new RegExp(`^[${SPACE}]+`);

const isSpaceCode = (code: number) =>
  code === 0x20 ||
  (code >= 9 && code <= 13) ||
  (code >= 0x1c && code <= 0x1f) ||
  (code >= 0x80 && ONLY_SPACE.test(String.fromCharCode(code)));

export const isSpace = (text: string) => ONLY_SPACE.test(text);
export const stripStart = (text: string) => text.replace(LEADING, "");

export function stripEnd(text: string): string {
  let end = text.length;
  while (end > 0 && isSpaceCode(text.charCodeAt(end - 1))) end--;
  return text.slice(0, end);
}

const SURROGATE = /[\ud800-\udfff]/;
/** Whether code points and code units of a text may differ. */
export const hasSurrogates = (text: string) => SURROGATE.test(text);

export function lengthOf(text: string): number {
  if (!hasSurrogates(text)) return text.length;
  let length = 0;
  for (let at = 0; at < text.length; at++, length++) if ((text.codePointAt(at) as number) > 0xffff) at++;
  return length;
}

/** The code points of a text, each as a text. */
export const codePoints = (text: string): string[] => (hasSurrogates(text) ? Array.from(text) : text.split(""));

/** Orders texts by code points: -1, 0 or 1. */
export function compareTexts(a: string, b: string): number {
  if (a === b) return 0;
  const shorter = Math.min(a.length, b.length);
  for (let at = 0; at < shorter; at++) {
    const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)];
    if (x === y) continue;
    // Surrogates stand for code points beyond all others.
    const rank = (code: number) => (code >= 0xd800 && code < 0xe000 ? code + 0x10000 : code);
    return rank(x) < rank(y) ? -1 : 1;
  }
  return a.length < b.length ? -1 : 1;
}

/** The title case of one character. */
function titleOf(char: string): string {
  const code = char.codePointAt(0) as number;
  if (code < 0x80) return char.toUpperCase();
  if (char === "ß" || (code >= 0xfb00 && code <= 0xfb06)) {
    const upper = char.toUpperCase();
    return upper.charAt(0) + upper.slice(1).toLowerCase();
  }
  // Croatian digraphs have a third case, Georgian has none in titles.
  if (code >= 0x1c4 && code <= 0x1cc) return String.fromCharCode(code <= 0x1c6 ? 0x1c5 : code <= 0x1c9 ? 0x1c8 : 0x1cb);
  if (code >= 0x1f1 && code <= 0x1f3) return "\u01f2";
  if (code >= 0x10d0 && code <= 0x10ff) return char;
  const upper = char.toUpperCase();
  if (lengthOf(upper) > 1) throw unsupported(`the title case of ${JSON.stringify(char)}`);
  return upper;
}

/** `str.capitalize` */
export function capitalize(text: string): string {
  if (text === "") return "";
  const first = String.fromCodePoint(text.codePointAt(0) as number);
  return titleOf(first) + text.slice(first.length).toLowerCase();
}

const CASED = /[\p{Uppercase}\p{Lowercase}\p{Lt}]/u;
export const isCased = (char: string) => CASED.test(char);

/** `str.title` */
export function title(text: string): string {
  let result = "";
  let inWord = false;
  for (const char of text) {
    const cased = isCased(char);
    result += cased ? (inWord ? char.toLowerCase() : titleOf(char)) : char;
    inWord = cased;
  }
  return result;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: Python ends lines at these
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** `str.splitlines` */
export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let begin = 0;
  for (const { 0: end, index } of text.matchAll(LINE_END)) {
    lines.push(text.slice(begin, keepEnds ? index + end.length : index));
    begin = index + end.length;
  }
  if (begin < text.length) lines.push(text.slice(begin));
  return lines;
}

const UNPRINTABLE = /[\p{C}\p{Z}]/u;
/** `str.isprintable` of one character. */
export const isPrintable = (char: string) => char === " " || !UNPRINTABLE.test(char);

const NEEDS_CARE = /[^\x20-\x7e]|[\\']/;

/** `repr` of a text. */
export function textRepr(text: string): string {
  if (!NEEDS_CARE.test(text)) return `'${text}'`;
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  let result = quote;
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    if (char === quote || char === "\\") result += `\\${char}`;
    else if (char === "\n") result += "\\n";
    else if (char === "\r") result += "\\r";
    else if (char === "\t") result += "\\t";
    else if (code < 0x7f ? code >= 0x20 : isPrintable(char)) result += char;
    else if (code <= 0xff) result += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code <= 0xffff) result += `\\u${code.toString(16).padStart(4, "0")}`;
    else result += `\\U${code.toString(16).padStart(8, "0")}`;
  }
  return result + quote;
}
