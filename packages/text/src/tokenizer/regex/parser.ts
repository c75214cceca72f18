import { type CharSet, type Node, type Pattern, PatternError, type Position } from "./ast.ts";
import { parseClass } from "./class_parser.ts";
import { ESCAPED_CLASSES, propertyClass } from "./properties.ts";
import { Reader, readEscapedCharacter } from "./reader.ts";

const MAX_DEPTH = 64;
const MAX_REPEAT = 100_000;

interface Flags {
  ignoreCase: boolean;
  /** A dot matches line feeds: `m` in Oniguruma. */
  dotAll: boolean;
  extended: boolean;
}

const POSITIONS: Readonly<Record<string, Position>> = {
  A: "textStart",
  z: "textEnd",
  Z: "lastLineEnd",
  G: "searchStart",
  b: "wordBoundary",
  B: "noWordBoundary",
};

export const setOf = (source: string, negated = false): CharSet => ({ kind: "set", source, negated });
const EMPTY: Node = { kind: "empty" };

/** Reads a pattern in the syntax of Oniguruma (its own, which is close to Ruby's). */
export function parsePattern(source: string): Pattern {
  return new Parser(source).parse();
}

class Parser {
  private readonly reader: Reader;
  private readonly names = new Map<string, number[]>();
  /** With named groups, groups without a name do not capture. */
  private readonly hasNames: boolean;
  private captures = 0;
  private depth = 0;
  private flags: Flags = { ignoreCase: false, dotAll: false, extended: false };

  constructor(source: string) {
    this.reader = new Reader(source);
    this.hasNames = /\(\?<[^=!]/.test(source.replace(/\\./gs, ""));
  }

  parse(): Pattern {
    const root = this.choice();
    if (!this.reader.done) throw new PatternError("a bracket ) is closed that was not opened");
    return { root, captures: this.captures };
  }

  private choice(): Node {
    if (++this.depth > MAX_DEPTH) throw new PatternError(`groups are more than ${MAX_DEPTH} deep`);
    const { flags } = this;
    const choices = [this.sequence()];
    while (this.reader.take("|")) choices.push(this.sequence());
    this.flags = flags;
    this.depth--;
    return choices.length === 1 ? (choices[0] as Node) : { kind: "choice", choices };
  }

  private sequence(): Node {
    const parts: Node[] = [];
    const { reader } = this;
    while (!reader.done && !reader.at("|") && !reader.at(")")) {
      if (this.flags.extended && this.skipsExtended()) continue;
      const atom = this.atom();
      if (atom !== undefined) parts.push(this.repeated(atom));
    }
    return parts.length === 1 ? (parts[0] as Node) : parts.length === 0 ? EMPTY : { kind: "sequence", parts };
  }

  private skipsExtended(): boolean {
    const { reader } = this;
    if (reader.match(/[\s]+/y) !== undefined) return true;
    return reader.match(/#[^\n]*\n?/y) !== undefined;
  }

  private repeated(atom: Node): Node {
    let node = atom;
    for (;;) {
      const range = this.quantifier();
      if (range === undefined) return node;
      if (node.kind === "position" || node.kind === "look")
        throw new PatternError("a quantifier after a position is not supported");
      const [min, max, isInterval] = range;
      if (min > max) throw new PatternError(`{${min},${max}} is not supported`);
      const { reader } = this;
      const mode = reader.take("?") ? "lazy" : !isInterval && reader.take("+") ? "possessive" : "greedy";
      node = { kind: "repeat", node, min, max, mode };
    }
  }

  private quantifier(): [min: number, max: number, isInterval: boolean] | undefined {
    const { reader } = this;
    if (reader.take("*")) return [0, Number.POSITIVE_INFINITY, false];
    if (reader.take("+")) return [1, Number.POSITIVE_INFINITY, false];
    if (reader.take("?")) return [0, 1, false];
    const interval = reader.match(/\{(\d*)(,?)(\d*)\}/y);
    if (interval === undefined) return undefined;
    const [all, from = "", comma, to = ""] = interval;
    // `{}` and `{,}` are plain text.
    if (from === "" && to === "") {
      reader.back(all.length);
      return undefined;
    }
    const min = Number(from);
    const max = comma === "" ? min : to === "" ? Number.POSITIVE_INFINITY : Number(to);
    for (const count of [min, max])
      if (count > MAX_REPEAT && count !== Number.POSITIVE_INFINITY) throw new PatternError("a count is too large");
    return [min, max, true];
  }

  private atom(): Node | undefined {
    const { reader } = this;
    if (reader.take("(")) return this.group();
    if (reader.take("[")) return parseClass(reader, this.flags.ignoreCase);
    if (reader.take(".")) return this.flags.dotAll ? setOf("[\\u{0}-\\u{10ffff}]") : setOf("[\\n]", true);
    if (reader.take("^")) return { kind: "position", at: "lineStart" };
    if (reader.take("$")) return { kind: "position", at: "lineEnd" };
    if (reader.take("\\")) return this.escape();
    if (reader.at("*") || reader.at("+") || reader.at("?")) throw new PatternError("a quantifier follows nothing");
    // A brace that begins no interval is plain text: reading an interval here would follow nothing.
    if (/\{(\d+,?\d*|,\d+)\}/y.test(reader.rest(16))) throw new PatternError("a quantifier follows nothing");
    return this.literal(reader.next());
  }

  private literal(codePoint: number): Node {
    if (!this.flags.ignoreCase) return { kind: "literal", codePoint };
    return { kind: "set", source: "[]", folded: `[\\u{${codePoint.toString(16)}}]`, negated: false };
  }

  private escape(): Node {
    const { reader } = this;
    if (reader.done) throw new PatternError("ends with a backslash");
    const digits = reader.match(/[1-9]\d*/y);
    if (digits !== undefined) {
      const index = Number(digits[0]);
      if (index > this.captures || this.hasNames) throw new PatternError(`\\${digits[0]} is not supported`);
      return { kind: "backreference", indices: [index], folds: this.flags.ignoreCase };
    }
    const property = reader.property();
    if (property !== undefined) return setOf(propertyClass(property.name), property.negated);
    const letter = reader.peek();
    if (Object.hasOwn(POSITIONS, letter)) {
      reader.next();
      return { kind: "position", at: POSITIONS[letter] as Position };
    }
    const lower = letter.toLowerCase();
    if (Object.hasOwn(ESCAPED_CLASSES, lower)) {
      reader.next();
      return setOf(ESCAPED_CLASSES[lower] as string, letter !== lower);
    }
    if (reader.take("R")) return LINE_BREAK;
    if (reader.take("N")) return setOf("[\\n]", true);
    if (reader.take("O")) return setOf("[\\u{0}-\\u{10ffff}]");
    if (reader.take("k")) return this.namedReference();
    if ("gKXyY".includes(letter)) throw new PatternError(`\\${letter} is not supported`);
    return this.literal(readEscapedCharacter(reader));
  }

  private namedReference(): Node {
    const name = this.reader.match(/<([^>]*)>|'([^']*)'/y);
    const indices = this.names.get(name?.[1] ?? name?.[2] ?? "");
    if (indices === undefined) throw new PatternError("\\k without a group of that name before it is not supported");
    return { kind: "backreference", indices: [...indices].reverse(), folds: this.flags.ignoreCase };
  }

  private group(): Node | undefined {
    const { reader } = this;
    if (!reader.take("?")) return this.closed(this.hasNames ? (node) => node : this.capture());
    if (reader.match(/#(?:\\.|[^)\\])*\)/sy) !== undefined) return undefined;
    // A group around a position may be repeated, the position itself may not.
    if (reader.take(":")) return this.closed((node) => ({ kind: "sequence", parts: [node] }));
    if (reader.take(">")) return this.closed((node) => ({ kind: "atomic", node }));
    for (const [text, behind, negated] of LOOKS)
      if (reader.take(text)) return this.closed((node) => ({ kind: "look", node, behind, negated }));
    const name = reader.match(/<([^>!=][^>]*)>|'([^']+)'/y);
    if (name !== undefined) return this.closed(this.capture(name[1] ?? name[2]));
    return this.options();
  }

  /** A group's content up to its bracket. */
  private closed(wrap: (node: Node) => Node): Node {
    const node = this.choice();
    if (!this.reader.take(")")) throw new PatternError("a bracket ( is not closed");
    return wrap(node);
  }

  private capture(name?: string): (node: Node) => Node {
    const index = ++this.captures;
    if (name !== undefined) this.names.set(name, [...(this.names.get(name) ?? []), index]);
    return (node) => ({ kind: "capture", index, node });
  }

  /** `(?i:…)`, or `(?i)`, which holds to the end of the group, its choices included. */
  private options(): Node {
    const { reader } = this;
    const found = reader.match(/([imx]*)(?:-([imx]*))?([:)])/y);
    if (found === undefined) throw new PatternError(`(?${reader.peek()} is not supported`);
    const { flags } = this;
    const changed = { ...flags };
    for (const [letters, value] of [
      [found[1] ?? "", true],
      [found[2] ?? "", false],
    ] as const)
      for (const letter of letters)
        changed[letter === "i" ? "ignoreCase" : letter === "m" ? "dotAll" : "extended"] = value;
    this.flags = changed;
    const node = found[3] === ":" ? this.closed((inner) => ({ kind: "sequence", parts: [inner] })) : this.choice();
    this.flags = flags;
    return node;
  }
}

const LOOKS = [
  ["=", false, false],
  ["!", false, true],
  ["<=", true, false],
  ["<!", true, true],
] as const;

const LINE_BREAK: Node = {
  kind: "atomic",
  node: {
    kind: "choice",
    choices: [
      {
        kind: "sequence",
        parts: [
          { kind: "literal", codePoint: 13 },
          { kind: "literal", codePoint: 10 },
        ],
      },
      setOf("[\\n-\\r\\u{85}\\u{2028}\\u{2029}]"),
    ],
  },
};
