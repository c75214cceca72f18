import { type CharSet, PatternError } from "./ast.ts";
import { ESCAPED_CLASSES, POSIX_CLASSES, propertyClass } from "./properties.ts";
import { type Reader, readEscapedCharacter } from "./reader.ts";

const MAX_DEPTH = 16;
const escaped = (codePoint: number) => `\\u{${codePoint.toString(16)}}`;

/** Reads a class after its opening bracket. */
export function parseClass(reader: Reader, ignoreCase: boolean, depth = 0): CharSet {
  if (depth > MAX_DEPTH) throw new PatternError(`classes are more than ${MAX_DEPTH} deep`);
  const negated = reader.take("^");
  const operands: CharSet[] = [];
  let plain = "";
  let folded = "";
  let isFirst = true;
  const close = () => {
    const set: CharSet = { kind: "set", source: `[${plain}]`, negated: false };
    if (folded !== "") set.folded = `[${folded}]`;
    operands.push(set);
    plain = "";
    folded = "";
  };
  for (; ; isFirst = false) {
    if (reader.done) throw new PatternError("a class [ is not closed");
    if (!isFirst && reader.take("]")) break;
    if (reader.take("&&")) {
      close();
      continue;
    }
    const posix = reader.match(/\[:(\^?)(\w+):\]/y);
    if (posix !== undefined) {
      const name = (posix[2] as string).toLowerCase();
      if (!Object.hasOwn(POSIX_CLASSES, name)) throw new PatternError(`[:${posix[2]}:] is not supported`);
      plain += posix[1] === "^" ? `[^${POSIX_CLASSES[name]}]` : POSIX_CLASSES[name];
      continue;
    }
    if (reader.take("[")) {
      const inner = parseClass(reader, ignoreCase, depth + 1);
      if (inner.folded !== undefined || inner.and !== undefined) {
        if (ignoreCase) throw new PatternError("a class within a class under (?i) is not supported");
      }
      plain += sourceOf(inner);
      continue;
    }
    const set = reader.at("\\") ? escapedSet(reader) : undefined;
    if (set !== undefined) {
      plain += set;
      continue;
    }
    const first = member(reader);
    let range = escaped(first);
    if (reader.at("-") && !reader.at("-]") && !reader.at("-[") && !reader.at("-&&")) {
      reader.take("-");
      if (reader.at("\\") && escapedSet(reader) !== undefined)
        throw new PatternError("a range to a class is not supported");
      const last = member(reader);
      if (last < first) throw new PatternError("a range of a class is empty");
      range = `${range}-${escaped(last)}`;
    }
    if (ignoreCase) folded += range;
    else plain += range;
  }
  close();
  const [first, ...and] = operands as [CharSet, ...CharSet[]];
  return and.length === 0 ? { ...first, negated } : { ...first, and, negated };
}

/** The class as one for a RegExp with the flag `v`, without regard to `(?i)`. */
export function sourceOf({ source, and = [], negated }: CharSet): string {
  const all = and.length === 0 ? source : `[${[source, ...and.map(sourceOf)].join("&&")}]`;
  return negated ? `[^${all}]` : all;
}

/** A class after a backslash in a class: `\s`, `\p{L}`; undefined for a single character. */
function escapedSet(reader: Reader): string | undefined {
  reader.take("\\");
  const property = reader.property();
  if (property !== undefined) {
    const set = propertyClass(property.name);
    return property.negated ? `[^${set}]` : set;
  }
  const letter = reader.peek();
  const set = ESCAPED_CLASSES[letter.toLowerCase()];
  if (set !== undefined && /[a-zA-Z]/.test(letter)) {
    reader.next();
    return letter === letter.toLowerCase() ? set : `[^${set}]`;
  }
  if (letter === "R" || letter === "X") throw new PatternError(`[\\${letter}] is not supported`);
  reader.back(1);
  return undefined;
}

/** A single character of a class. */
function member(reader: Reader): number {
  if (!reader.take("\\")) return reader.next();
  if (reader.take("b")) return 8;
  return readEscapedCharacter(reader);
}
