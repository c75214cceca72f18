import { PatternError } from "./ast.ts";

/** Reads the source of a pattern. */
export class Reader {
  private readonly source: string;
  private position = 0;

  constructor(source: string) {
    this.source = source;
  }

  get done(): boolean {
    return this.position >= this.source.length;
  }

  at(text: string): boolean {
    return this.source.startsWith(text, this.position);
  }

  take(text: string): boolean {
    if (!this.at(text)) return false;
    this.position += text.length;
    return true;
  }

  /** The next unit, which is not taken. */
  peek(): string {
    return this.source.charAt(this.position);
  }

  rest(length: number): string {
    return this.source.slice(this.position, this.position + length);
  }

  back(length: number): void {
    this.position -= length;
  }

  /** The next character, which is taken. */
  next(): number {
    const codePoint = this.source.codePointAt(this.position);
    if (codePoint === undefined) throw new PatternError("ends too early");
    this.position += codePoint > 0xffff ? 2 : 1;
    return codePoint;
  }

  /** Takes what a sticky expression matches here. */
  match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.position;
    const found = expression.exec(this.source);
    if (found === null) return undefined;
    this.position += found[0].length;
    return found;
  }

  /** A property after a backslash: `p{name}`, `p{^name}`, `P{name}`, `pL`. */
  property(): { name: string; negated: boolean } | undefined {
    const found = this.match(/([pP])(?:\{(\^?)([^{}]{1,64})\}|([A-Za-z]))/y);
    if (found === undefined) return undefined;
    const [, letter, caret, name, short] = found;
    return { name: name ?? (short as string), negated: (letter === "P") !== (caret === "^") };
  }
}

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7, e: 27 };

/** A single character after a backslash. */
export function readEscapedCharacter(reader: Reader): number {
  const hex = reader.match(/x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})/y);
  if (hex !== undefined) {
    const codePoint = Number.parseInt((hex[1] ?? hex[2] ?? hex[3]) as string, 16);
    // A byte above 7f would begin a character of several bytes.
    if (
      codePoint > 0x10ffff ||
      (codePoint >= 0xd800 && codePoint < 0xe000) ||
      (hex[2] !== undefined && codePoint > 0x7f)
    )
      throw new PatternError(`\\${hex[0]} is not supported`);
    return codePoint;
  }
  const octal = reader.match(/0[0-7]{0,2}/y);
  if (octal !== undefined) return Number.parseInt(octal[0], 8);
  const letter = reader.peek();
  if (Object.hasOwn(CONTROLS, letter)) {
    reader.next();
    return CONTROLS[letter] as number;
  }
  if (/[cCMxu]/.test(letter)) throw new PatternError(`\\${letter} is not supported`);
  return reader.next();
}
