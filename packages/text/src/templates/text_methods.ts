// Methods of Python's `str`.
import type { Budget } from "./budget.ts";
import {
  capitalize,
  codePoints,
  hasSurrogates,
  isCased,
  isPrintable,
  isSpace,
  lengthOf,
  splitLines,
  stripEnd,
  stripStart,
  title,
} from "./characters.ts";
import { typeFault, unsupported, valueFault } from "./faults.ts";
import { indexArgument, indexOf, iterate, truth } from "./operators.ts";
import { bind, positionalOnly, signature } from "./signature.ts";
import { type Args, Dict, isList, Markup, Tuple, typeName, type Value } from "./values.ts";

type Method = (budget: Budget, self: string, args: Args) => Value;

/** A text among the arguments. */
function textArgument(what: string, value: Value | undefined): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) throw unsupported(`${what} with the result of \`safe\` or \`escape\``);
  throw typeFault(`${what} argument must be str, not ${typeName(value as Value)}`);
}

/** `str.strip` and its like: the characters that go, white space when none are given. */
export function strip(text: string, characters: Value | undefined, ends: "both" | "start" | "end"): string {
  if (characters === undefined || characters === null) {
    const begun = ends === "end" ? text : stripStart(text);
    return ends === "start" ? begun : stripEnd(begun);
  }
  const going = new Set(codePoints(textArgument("strip", characters)));
  const kept = codePoints(text);
  let [from, to] = [0, kept.length];
  if (ends !== "end") while (from < to && going.has(kept[from] as string)) from++;
  if (ends !== "start") while (to > from && going.has(kept[to - 1] as string)) to--;
  return kept.slice(from, to).join("");
}

const stripMethod =
  (name: string, ends: "both" | "start" | "end"): Method =>
  (budget, self, given) => {
    const [characters] = positionalOnly(name, given, 0, 1);
    budget.work(self.length / 4);
    return budget.made(strip(self, characters, ends));
  };

/** Words between white space, at most `most` splits from the start or, with `fromEnd`, from the end. */
function splitWords(text: string, most: number, fromEnd: boolean): string[] {
  const words: string[] = [];
  const spaces = (at: number) => isSpace(text.charAt(at));
  if (!fromEnd) {
    let at = 0;
    for (;;) {
      while (at < text.length && spaces(at)) at++;
      if (at >= text.length) return words;
      if (words.length === most) {
        words.push(text.slice(at));
        return words;
      }
      const begin = at;
      while (at < text.length && !spaces(at)) at++;
      words.push(text.slice(begin, at));
    }
  }
  let at = text.length;
  for (;;) {
    while (at > 0 && spaces(at - 1)) at--;
    if (at <= 0) return words.reverse();
    if (words.length === most) {
      words.push(text.slice(0, at));
      return words.reverse();
    }
    const end = at;
    while (at > 0 && !spaces(at - 1)) at--;
    words.push(text.slice(at, end));
  }
}

function splitAt(text: string, separator: string, most: number, fromEnd: boolean): string[] {
  if (separator === "") throw valueFault("empty separator");
  const places: number[] = [];
  for (let at = indexOf(text, separator, 0); at >= 0; at = indexOf(text, separator, at + separator.length))
    places.push(at);
  if (fromEnd && places.length > most) return splitFromEnd(text, separator, most);
  const parts: string[] = [];
  let begin = 0;
  for (const at of places.slice(0, most)) {
    parts.push(text.slice(begin, at));
    begin = at + separator.length;
  }
  parts.push(text.slice(begin));
  return parts;
}

function splitFromEnd(text: string, separator: string, most: number): string[] {
  const parts: string[] = [];
  let end = text.length;
  while (parts.length < most) {
    const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
    if (at < 0) break;
    parts.push(text.slice(at + separator.length, end));
    end = at;
  }
  parts.push(text.slice(0, end));
  return parts.reverse();
}

const SPLIT = signature("sep? maxsplit?");
const splitMethod =
  (name: string, fromEnd: boolean): Method =>
  (budget, self, given) => {
    const [separator = null, limit = -1] = bind(name, SPLIT, given);
    const limited = indexArgument(limit);
    const most = limited < 0 ? Number.POSITIVE_INFINITY : limited;
    budget.work(self.length);
    const parts =
      separator === null
        ? splitWords(self, most, fromEnd)
        : splitAt(self, textArgument(name, separator), most, fromEnd);
    budget.makeItems(parts.length);
    budget.make(self.length);
    return parts;
  };

/** How many code units of a text its first code points take. */
const unitsOf = (text: string, points: number) =>
  hasSurrogates(text) ? codePoints(text).slice(0, points).join("").length : points;

/** The part of a text that the arguments `start` and `end` of methods such as `find` choose; undefined where start is beyond the end. */
function window(
  text: string,
  start: Value | undefined,
  end: Value | undefined,
): { part: string; offset: number } | undefined {
  if ((start ?? null) === null && (end ?? null) === null) return { part: text, offset: 0 };
  const length = lengthOf(text);
  const bound = (value: Value | undefined, otherwise: number) => {
    if (value === undefined || value === null) return otherwise;
    const at = indexArgument(value);
    return at < 0 ? Math.max(0, at + length) : at;
  };
  const from = bound(start, 0);
  const to = Math.min(length, bound(end, length));
  if (from > length || from > to) return undefined;
  return { part: text.slice(unitsOf(text, from), unitsOf(text, to)), offset: from };
}

function find(name: string, budget: Budget, self: string, given: Args, last: boolean): number {
  const [part, start, end] = positionalOnly(name, given, 1, 3);
  const wanted = textArgument(name, part);
  budget.work(self.length / 8);
  const within = window(self, start, end);
  if (!within) return -1;
  const at = last ? within.part.lastIndexOf(wanted) : indexOf(within.part, wanted, 0);
  return at < 0 ? -1 : within.offset + lengthOf(within.part.slice(0, at));
}

const findMethod =
  (name: string, last: boolean, fails: boolean): Method =>
  (budget, self, given) => {
    const at = find(name, budget, self, given, last);
    if (at < 0 && fails) throw valueFault("substring not found");
    return at;
  };

/** The places of parts that do not overlap. */
function countOf(text: string, part: string): number {
  if (part === "") return lengthOf(text) + 1;
  let count = 0;
  for (let at = indexOf(text, part, 0); at >= 0; at = indexOf(text, part, at + part.length)) count++;
  return count;
}

/** `str.replace` */
export function replace(budget: Budget, text: string, old: string, by: string, count: number): string {
  budget.work(text.length);
  const most = count < 0 ? Number.POSITIVE_INFINITY : count;
  const times = Math.min(most, countOf(text, old));
  if (times === 0) return text;
  budget.make(text.length + times * (by.length - old.length));
  if (old === "") {
    const characters = codePoints(text);
    let result = "";
    for (let at = 0; at < characters.length || at < times; at++)
      result += (at < times ? by : "") + (characters[at] ?? "");
    return result;
  }
  const parts = splitAt(text, old, times, false);
  return parts.join(by);
}

const affixMethod =
  (name: "startswith" | "endswith"): Method =>
  (budget, self, given) => {
    const [affix, start, end] = positionalOnly(name, given, 1, 3);
    const affixes = affix instanceof Tuple ? affix.items : [affix];
    if (isList(affix as Value)) throw typeFault(`${name} first arg must be str or a tuple of str, not list`);
    budget.work(affixes.length);
    const within = window(self, start, end);
    return affixes.some((each) => {
      const text = textArgument(name, each);
      return (
        within !== undefined && (name === "startswith" ? within.part.startsWith(text) : within.part.endsWith(text))
      );
    });
  };

/** A test of every character, false for the empty text. */
const every =
  (pattern: RegExp): Method =>
  (budget, self, given) => {
    positionalOnly("is…", given, 0, 0);
    budget.work(self.length);
    return self !== "" && codePoints(self).every((char) => pattern.test(char));
  };

const ALPHA = /^\p{L}$/u;
const DECIMAL = /^\p{Nd}$/u;
// Digits that are no decimals: superscripts, circled and the like.
const DIGIT =
  /^[\p{Nd}\u00b2\u00b3\u00b9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]$/u;
const NUMERIC = /^\p{N}$/u;
const ALNUM = /^[\p{L}\p{N}]$/u;
const UPPER = /^\p{Uppercase}$/u;
const TITLE = /^\p{Lt}$/u;

/** Whether a text has cased characters, and all of them in that case. */
export function hasCase(text: string, upper: boolean): boolean {
  let cased = false;
  for (const char of text) {
    if (!isCased(char)) continue;
    if (TITLE.test(char) || UPPER.test(char) !== upper) return false;
    cased = true;
  }
  return cased;
}

function isTitle(text: string): boolean {
  let [inWord, found] = [false, false];
  for (const char of text) {
    const cased = isCased(char);
    const begins = UPPER.test(char) || TITLE.test(char);
    if (cased && begins === inWord) return false;
    inWord = cased;
    found ||= cased;
  }
  return found;
}

const simple =
  (name: string, work: (self: string) => Value): Method =>
  (budget, self, given) => {
    positionalOnly(name, given, 0, 0);
    budget.work(self.length);
    const result = work(self);
    return typeof result === "string" ? budget.made(result) : result;
  };

const alignMethod =
  (name: "ljust" | "rjust" | "center"): Method =>
  (budget, self, given) => {
    const [width, fill = " "] = positionalOnly(name, given, 1, 2);
    return align(budget, self, indexArgument(width as Value), textArgument(name, fill), name);
  };

export function align(
  budget: Budget,
  text: string,
  width: number,
  fill: string,
  to: "ljust" | "rjust" | "center",
): string {
  if (lengthOf(fill) !== 1) throw typeFault("The fill character must be exactly one character long");
  const missing = width - lengthOf(text);
  if (!(missing > 0)) return text;
  budget.make(text.length + missing * fill.length);
  const left = to === "rjust" ? missing : to === "ljust" ? 0 : (missing >> 1) + (missing & width & 1);
  return fill.repeat(left) + text + fill.repeat(missing - left);
}

const partitionMethod =
  (name: string, last: boolean): Method =>
  (budget, self, given) => {
    const [separator] = positionalOnly(name, given, 1, 1);
    const text = textArgument(name, separator);
    if (text === "") throw valueFault("empty separator");
    budget.make(self.length + 96);
    const at = last ? self.lastIndexOf(text) : indexOf(self, text, 0);
    if (at < 0) return new Tuple(last ? ["", "", self] : [self, "", ""]);
    return new Tuple([self.slice(0, at), text, self.slice(at + text.length)]);
  };

const swapCase = (text: string) =>
  codePoints(text)
    .map((char) => (UPPER.test(char) ? char.toLowerCase() : char.toUpperCase()))
    .join("");

function join(budget: Budget, self: string, given: Args): string {
  const [items] = positionalOnly("join", given, 1, 1);
  return joinItems(budget, self, items as Value, (item, at) => {
    if (typeof item === "string") return item;
    if (item instanceof Markup) throw unsupported("joining results of `safe` or `escape`");
    throw typeFault(`sequence item ${at}: expected str instance, ${typeName(item)} found`);
  });
}

/** The texts of all items with a separator between them. */
export function joinItems(
  budget: Budget,
  separator: string,
  items: Value,
  textOfItem: (item: Value, at: number) => string,
): string {
  const parts: string[] = [];
  let length = 0;
  const iterator = iterate(budget, items);
  for (let next = iterator.next(); !next.done; next = iterator.next()) {
    const text = textOfItem(next.value, parts.length);
    length += text.length + separator.length;
    budget.work(1);
    if (length > 1 << 16) {
      budget.make(length);
      length = 0;
    }
    parts.push(text);
  }
  const total = parts.reduce((sum, part) => sum + part.length, 0) + separator.length * Math.max(0, parts.length - 1);
  budget.make(total);
  return parts.join(separator);
}

function expandTabs(budget: Budget, self: string, size: number): string {
  let [result, column] = ["", 0];
  for (const char of codePoints(self)) {
    if (char === "\t") {
      const spaces = size > 0 ? size - (column % size) : 0;
      budget.make(spaces);
      result += " ".repeat(spaces);
      column += spaces;
    } else {
      result += char;
      column = char === "\n" || char === "\r" ? 0 : column + 1;
    }
  }
  return budget.made(result);
}

function zfill(budget: Budget, self: string, width: number): string {
  const missing = width - lengthOf(self);
  if (!(missing > 0)) return self;
  budget.make(self.length + missing);
  const sign = /^[+-]/.test(self) ? self.charAt(0) : "";
  return sign + "0".repeat(missing) + self.slice(sign.length);
}

const TABS = signature("tabsize?");
const LINES = signature("keepends?");

export const TEXT_METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ["capitalize", simple("capitalize", capitalize)],
  [
    "casefold",
    simple("casefold", (self) => {
      if (/[^\0-\x7f]/.test(self)) throw unsupported("casefold of characters beyond ASCII");
      return self.toLowerCase();
    }),
  ],
  ["center", alignMethod("center")],
  [
    "count",
    (budget, self, given) => {
      const [part, start, end] = positionalOnly("count", given, 1, 3);
      budget.work(self.length / 8);
      const within = window(self, start, end);
      return within ? countOf(within.part, textArgument("count", part)) : 0;
    },
  ],
  ["endswith", affixMethod("endswith")],
  [
    "expandtabs",
    (budget, self, given) => {
      const [size = 8] = bind("expandtabs", TABS, given);
      budget.work(self.length);
      return expandTabs(budget, self, indexArgument(size));
    },
  ],
  ["find", findMethod("find", false, false)],
  ["index", findMethod("index", false, true)],
  ["isalnum", every(ALNUM)],
  ["isalpha", every(ALPHA)],
  ["isascii", simple("isascii", (self) => !/[^\0-\x7f]/.test(self))],
  ["isdecimal", every(DECIMAL)],
  ["isdigit", every(DIGIT)],
  ["isidentifier", simple("isidentifier", (self) => /^[\p{ID_Start}_][\p{ID_Continue}]*$/u.test(self))],
  ["islower", simple("islower", (self) => hasCase(self, false))],
  ["isnumeric", every(NUMERIC)],
  ["isprintable", simple("isprintable", (self) => codePoints(self).every(isPrintable))],
  ["isspace", simple("isspace", isSpace)],
  ["istitle", simple("istitle", isTitle)],
  ["isupper", simple("isupper", (self) => hasCase(self, true))],
  ["join", join],
  ["ljust", alignMethod("ljust")],
  ["lower", simple("lower", (self) => self.toLowerCase())],
  ["lstrip", stripMethod("lstrip", "start")],
  ["partition", partitionMethod("partition", false)],
  [
    "removeprefix",
    (budget, self, given) => {
      const prefix = textArgument("removeprefix", positionalOnly("removeprefix", given, 1, 1)[0]);
      return self.startsWith(prefix) ? budget.made(self.slice(prefix.length)) : self;
    },
  ],
  [
    "removesuffix",
    (budget, self, given) => {
      const suffix = textArgument("removesuffix", positionalOnly("removesuffix", given, 1, 1)[0]);
      return suffix !== "" && self.endsWith(suffix) ? budget.made(self.slice(0, -suffix.length)) : self;
    },
  ],
  [
    "replace",
    (budget, self, given) => {
      const [old, by, count = -1] = positionalOnly("replace", given, 2, 3);
      return replace(budget, self, textArgument("replace", old), textArgument("replace", by), indexArgument(count));
    },
  ],
  ["rfind", findMethod("rfind", true, false)],
  ["rindex", findMethod("rindex", true, true)],
  ["rjust", alignMethod("rjust")],
  ["rpartition", partitionMethod("rpartition", true)],
  ["rsplit", splitMethod("rsplit", true)],
  ["rstrip", stripMethod("rstrip", "end")],
  ["split", splitMethod("split", false)],
  [
    "splitlines",
    (budget, self, given) => {
      const [keep = false] = bind("splitlines", LINES, given);
      budget.work(self.length);
      const lines = splitLines(self, truth(keep));
      budget.makeItems(lines.length);
      budget.make(self.length);
      return lines;
    },
  ],
  ["startswith", affixMethod("startswith")],
  ["strip", stripMethod("strip", "both")],
  ["swapcase", simple("swapcase", swapCase)],
  ["title", simple("title", title)],
  [
    "translate",
    (budget, self, given) => {
      const [table] = positionalOnly("translate", given, 1, 1);
      if (!(table instanceof Dict)) throw unsupported("translate without a dict");
      budget.work(self.length);
      let result = "";
      for (const char of codePoints(self)) {
        const by = table.get(char.codePointAt(0) as number);
        if (by === null) continue;
        if (by !== undefined && typeof by !== "string" && typeof by !== "number")
          throw typeFault("character mapping must return integer, None or str");
        result += by === undefined ? char : typeof by === "number" ? String.fromCodePoint(by) : by;
        if (result.length > 2 * self.length) budget.make(result.length);
      }
      return budget.made(result);
    },
  ],
  ["upper", simple("upper", (self) => self.toUpperCase())],
  [
    "zfill",
    (budget, self, given) => zfill(budget, self, indexArgument(positionalOnly("zfill", given, 1, 1)[0] as Value)),
  ],
]);
