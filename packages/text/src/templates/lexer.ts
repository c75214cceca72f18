// Tokens of a template, as jinja2's lexer makes them with trim_blocks and lstrip_blocks.
import { SPACE, stripEnd } from "./characters.ts";
import { Fault, unsupported } from "./faults.ts";

export type TokenType = "data" | "begin" | "end" | "print" | "printEnd" | "name" | "text" | "number" | "op" | "eof";

export interface Token {
  readonly type: TokenType;
  readonly line: number;
  /** The name, operator or text; for numbers how they are written. */
  readonly value: string;
}

const OPERATORS = [..."// ** == != >= <=".split(" "), ..."+ - / * % ~ [ ] ( ) { } > < = . : | , ;".split(" ")];
const quoted = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");

const sticky = (pattern: string, flags = "") => new RegExp(pattern, `y${flags}`);
const WHITE = sticky(`[${SPACE}]+`);
const DIGITS = "(?:\\d+_)*\\d+";
const FLOAT = sticky(`${DIGITS}(?:(?:\\.${DIGITS})?e[+-]?${DIGITS}|\\.${DIGITS})`, "i");
const INTEGER = sticky("0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\\da-f])+|[1-9](?:_?\\d)*|0(?:_?0)*", "i");
const NAME = sticky("[\\w\\p{ID_Continue}]+", "u");
const IDENTIFIER = /^[\p{ID_Start}_][\p{ID_Continue}]*$/u;
const TEXT = sticky("'[^'\\\\]*(?:\\\\[\\s\\S][^'\\\\]*)*'|\"[^\"\\\\]*(?:\\\\[\\s\\S][^\"\\\\]*)*\"");
const OPERATOR = sticky(OPERATORS.map(quoted).join("|"));
const RAW = sticky(`\\{%([-+]?)[${SPACE}]*raw[${SPACE}]*(?:-%\\}[${SPACE}]*|%\\})`);
const RAW_END = new RegExp(`\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*(?:\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?)`, "g");
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}[${SPACE}]*|#\\}\\n?`, "g");
const BLOCK_END = sticky(`\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?`);
const PRINT_END = sticky(`-\\}\\}[${SPACE}]*|\\}\\}`);
const TAG = /\{[{%#]/g;
const CLOSING: Readonly<Record<string, string>> = { "{": "}", "(": ")", "[": "]" };

const countLines = (text: string) => text.split("\n").length - 1;

const SIMPLE_ESCAPES: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

const ESCAPE = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([\s\S]|$))/g;

/** What a text literal stands for: its inner part in ASCII with escapes, and then `unicode-escape` of Python. */
function unescaped(inner: string, line: number): string {
  if (!inner.includes("\\")) return inner;
  let ascii = "";
  for (const char of inner) {
    const code = char.codePointAt(0) as number;
    const [kind, digits] = code <= 0xff ? ["x", 2] : code <= 0xffff ? ["u", 4] : (["U", 8] as const);
    ascii += code < 0x80 ? char : `\\${kind}${code.toString(16).padStart(digits as number, "0")}`;
  }
  return ascii.replace(ESCAPE, (all: string, x?: string, u?: string, U?: string, octal?: string, other?: string) => {
    if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8));
    const hex = x ?? u ?? U;
    if (hex !== undefined) {
      const code = Number.parseInt(hex, 16);
      if (code > 0x10ffff) throw new Fault("syntax", "illegal Unicode character", line);
      if (code >= 0xd800 && code < 0xe000) throw unsupported("an escape of half a character");
      return String.fromCodePoint(code);
    }
    if (other === "N") throw unsupported("an escape \\N of a character's name");
    if (other === "" || other === "x" || other === "u" || other === "U")
      throw new Fault("syntax", `truncated \\${other} escape`, line);
    return Object.hasOwn(SIMPLE_ESCAPES, other as string) ? (SIMPLE_ESCAPES[other as string] as string) : all;
  });
}

/** The tokens of a template; the last is `eof`. */
export function tokenize(template: string): Token[] {
  return new Lexer(template).tokens;
}

class Lexer {
  readonly tokens: Token[] = [];
  private readonly source: string;
  private at = 0;
  private line = 1;
  private lineStarts = true;

  constructor(template: string) {
    this.source = template.replace(/\r\n?/g, "\n").replace(/\n$/, "");
    while (this.at < this.source.length) this.root();
    this.push("eof", "");
  }

  private push(type: TokenType, value: string): void {
    this.tokens.push({ type, value, line: this.line });
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    return pattern.exec(this.source);
  }

  /** Goes on behind a text that begins where the lexer is. */
  private skip(text: string): void {
    this.at += text.length;
    this.line += countLines(text);
    this.lineStarts = text.endsWith("\n");
  }

  /** Text up to a tag. `sign` of the tag and `isPrint` decide how much of its white space goes. */
  private data(text: string, sign: string, isPrint: boolean): void {
    let kept = text;
    if (sign === "-") kept = stripEnd(text);
    else if (sign !== "+" && !isPrint) {
      const begin = text.lastIndexOf("\n") + 1;
      if ((begin > 0 || this.lineStarts) && stripEnd(text.slice(begin)) === "") kept = text.slice(0, begin);
    }
    if (kept !== "") this.push("data", kept);
    this.line += countLines(text);
    this.at += text.length;
  }

  private root(): void {
    const { source } = this;
    TAG.lastIndex = this.at;
    const tag = TAG.exec(source);
    if (!tag) {
      const rest = source.slice(this.at);
      this.push("data", rest);
      this.skip(rest);
      return;
    }
    const text = source.slice(this.at, tag.index);
    RAW.lastIndex = tag.index;
    const raw = RAW.exec(source);
    const next = source[tag.index + 2] ?? "";
    const sign = raw ? (raw[1] as string) : next === "-" || next === "+" ? next : "";
    this.data(text, sign, tag[0] === "{{");
    if (raw) {
      this.skip(raw[0]);
      this.raw();
      return;
    }
    this.skip(tag[0] + sign);
    if (tag[0] === "{#") this.comment();
    else if (tag[0] === "{{") this.inside("print", "printEnd", PRINT_END);
    else this.inside("begin", "end", BLOCK_END);
  }

  private raw(): void {
    RAW_END.lastIndex = this.at;
    const end = RAW_END.exec(this.source);
    if (!end) throw new Fault("syntax", "Missing end of raw directive", this.line);
    this.data(this.source.slice(this.at, end.index), end[1] as string, false);
    this.skip(end[0]);
  }

  private comment(): void {
    COMMENT_END.lastIndex = this.at;
    const end = COMMENT_END.exec(this.source);
    if (!end) throw new Fault("syntax", "Missing end of comment tag", this.line);
    this.skip(this.source.slice(this.at, end.index + end[0].length));
  }

  /** The tokens within a tag, with those that begin and end it. */
  private inside(begin: TokenType, end: TokenType, endPattern: RegExp): void {
    this.push(begin, "");
    const open: string[] = [];
    while (this.at < this.source.length) {
      const ending = open.length === 0 ? this.match(endPattern) : null;
      if (ending) {
        this.push(end, "");
        this.skip(ending[0]);
        return;
      }
      this.token(open);
    }
  }

  private token(open: string[]): void {
    const white = this.match(WHITE);
    if (white) {
      this.skip(white[0]);
      return;
    }
    const number = (this.source[this.at - 1] === "." ? null : this.match(FLOAT)) ?? this.match(INTEGER);
    if (number) {
      this.push("number", number[0].replaceAll("_", ""));
      this.skip(number[0]);
      return;
    }
    const name = this.match(NAME);
    if (name) {
      if (!IDENTIFIER.test(name[0])) throw new Fault("syntax", "Invalid character in identifier", this.line);
      this.push("name", name[0]);
      this.skip(name[0]);
      return;
    }
    const text = this.match(TEXT);
    if (text) {
      this.push("text", unescaped(text[0].slice(1, -1), this.line));
      this.skip(text[0]);
      return;
    }
    const operator = this.match(OPERATOR);
    if (!operator)
      throw new Fault(
        "syntax",
        `unexpected char ${JSON.stringify(String.fromCodePoint(this.source.codePointAt(this.at) as number))}`,
        this.line,
      );
    const [value] = operator;
    if (Object.hasOwn(CLOSING, value)) open.push(CLOSING[value] as string);
    else if (value === "}" || value === ")" || value === "]") {
      const expected = open.pop();
      if (expected === undefined) throw new Fault("syntax", `unexpected '${value}'`, this.line);
      if (expected !== value) throw new Fault("syntax", `unexpected '${value}', expected '${expected}'`, this.line);
    }
    this.push("op", value);
    this.skip(value);
  }
}
