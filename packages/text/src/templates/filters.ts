// The filters of jinja2 on single values. Those on lists are in list_filters.ts.
import { ownAttribute, parseDouble, parseInteger, wholeOf } from "./attributes.ts";
import { capitalize, codePoints, lengthOf, SPACE, splitLines } from "./characters.ts";
import { typeFault, unsupported, valueFault } from "./faults.ts";
import { formatPercent } from "./format.ts";
import { LIST_FILTERS } from "./list_filters.ts";
import { arithmetic, doubleOf, negate, numberOf, roundFloat, roundInteger, scaledInteger } from "./numbers.ts";
import { indexArgument, iterate, lengthOfValue, listOf, truth } from "./operators.ts";
import type { Filter, Runtime } from "./runtime.ts";
import { bind, signature } from "./signature.ts";
import { align, replace, strip } from "./text_methods.ts";
import { textOf } from "./text_of.ts";
import { toJson } from "./to_json.ts";
import {
  type Args,
  Dict,
  DictView,
  Float,
  isList,
  Markup,
  orElse,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** A filter with parameters; those left out are undefined. */
const filter = (
  name: string,
  parameters: string,
  work: (runtime: Runtime, value: Value, given: readonly (Value | undefined)[]) => Value,
): [string, Filter] => {
  const names = signature(parameters);
  return [name, (runtime, value, given: Args) => work(runtime, value, bind(`the filter \`${name}\``, names, given))];
};

const refused = (name: string): [string, Filter] => [
  name,
  () => {
    throw unsupported(`the filter \`${name}\``);
  },
];

/** `soft_str(value)`: a text as it is, any other value as text. */
export function softText({ budget }: Runtime, value: Value): string {
  if (value instanceof Markup) throw unsupported("a filter of texts on the result of `safe` or `escape`");
  return textOf(budget, value);
}

/** A value that must be a text for a filter. */
function textOnly(name: string, value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Undefined) throw value.fault();
  if (value instanceof Markup) throw unsupported(`the filter \`${name}\` on the result of \`safe\` or \`escape\``);
  throw typeFault(`the filter \`${name}\` takes a text, not ${typeName(value)}`);
}

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  "'": "&#39;",
  '"': "&#34;",
};
const escapeHtml = (text: string) => text.replace(/[&<>'"]/g, (char) => ESCAPES[char] as string);
const escapeFilter = (name: string, again: boolean) =>
  filter(name, "", ({ budget }, value) =>
    value instanceof Markup && !again ? value : new Markup(budget.made(escapeHtml(textOf(budget, value)))),
  );

const WORD_BEGINNING = new RegExp(`([-${SPACE}({\\[<]+)`);

/** The filter `title`, which differs from the method: words begin after white space, hyphens and brackets. */
const titleWords = (text: string) =>
  text
    .split(WORD_BEGINNING)
    .map((part) => {
      const [first = "", ...rest] = codePoints(part);
      return first.toUpperCase() + rest.join("").toLowerCase();
    })
    .join("");

function indent(runtime: Runtime, value: Value, width: Value, first: boolean, blank: boolean): string {
  const { budget } = runtime;
  const text = textOnly("indent", value);
  const indention = typeof width === "string" ? width : " ".repeat(checkedWidth(runtime, width));
  const lines = splitLines(`${text}\n`);
  budget.make(text.length + indention.length * (lines.length + 1));
  let result: string;
  if (blank) result = lines.join(`\n${indention}`);
  else result = lines.map((line, at) => (at > 0 && line !== "" ? indention + line : line)).join("\n");
  return first ? indention + result : result;
}

function checkedWidth({ budget }: Runtime, width: Value): number {
  const count = Math.max(0, indexArgument(width));
  budget.make(count);
  return count;
}

function truncateText(text: string, length: number, kill: boolean, end: string, leeway: number): string {
  const ends = lengthOf(end);
  if (length < ends) throw valueFault(`expected length >= ${ends}, got ${length}`);
  if (leeway < 0) throw valueFault(`expected leeway >= 0, got ${leeway}`);
  const characters = codePoints(text);
  if (characters.length <= length + leeway) return text;
  const kept = characters.slice(0, length - ends).join("");
  const space = kill ? -1 : kept.lastIndexOf(" ");
  return (space < 0 ? kept : kept.slice(0, space)) + end;
}

function toInteger(value: Value, otherwise: Value, base: number): Value {
  if (typeof value === "string") {
    const number = parseInteger(value, base);
    if (number !== undefined) return number;
    const float = parseDouble(value);
    return float === undefined || !Number.isFinite(float) ? otherwise : (wholeOf(new Float(float)) as Value);
  }
  if (value instanceof Float && !Number.isFinite(value.value)) {
    // int(inf) raises an OverflowError, which the filter lets through.
    if (!Number.isNaN(value.value)) throw valueFault("cannot convert float infinity to integer");
    return otherwise;
  }
  return orElse(wholeOf(value), () => otherwise);
}

function toFloat(value: Value, otherwise: Value): Value {
  if (typeof value === "string") {
    const number = parseDouble(value);
    return number === undefined ? otherwise : new Float(number);
  }
  if (value instanceof Undefined) throw value.fault();
  const number = numberOf(value);
  return number === undefined ? otherwise : new Float(doubleOf(number));
}

function round({ budget }: Runtime, value: Value, precision: Value, method: Value): Value {
  if (method !== "common" && method !== "ceil" && method !== "floor")
    throw valueFault("method must be common, ceil or floor");
  if (value instanceof Undefined) throw value.fault();
  const number = numberOf(value);
  if (number === undefined) throw typeFault(`type ${typeName(value)} doesn't define __round__ method`);
  if (method === "common") {
    if (precision === null)
      return number instanceof Float ? (wholeOf(new Float(roundFloat(number.value, 0))) as Value) : number;
    const digits = indexArgument(precision);
    return number instanceof Float ? new Float(roundFloat(number.value, digits)) : roundInteger(number, digits);
  }
  const unit = arithmetic(budget, "**", 10, precision) as Value;
  const scaled = arithmetic(budget, "*", number, unit) as Value;
  const whole =
    scaled instanceof Float
      ? (wholeOf(new Float(method === "ceil" ? Math.ceil(scaled.value) : Math.floor(scaled.value))) as Value)
      : scaled;
  return arithmetic(budget, "/", whole, unit) as Value;
}

const SIZES = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
function fileSize(value: Value, binaryUnits: boolean): string {
  const number = toFloat(value, null);
  if (!(number instanceof Float)) throw valueFault("could not convert to float");
  const bytes = number.value;
  if (!Number.isFinite(bytes) || bytes < 0) throw unsupported("such a size for the filter `filesizeformat`");
  const base = binaryUnits ? 1024 : 1000;
  if (bytes === 1) return "1 Byte";
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  let at = 0;
  while (at < SIZES.length - 1 && !(bytes < base ** (at + 2))) at++;
  const size = (base * bytes) / base ** (at + 2);
  const digits = String(scaledInteger(size, 1)).padStart(2, "0");
  const prefix = binaryUnits ? `${(SIZES[at] as string).toUpperCase()}iB` : `${SIZES[at]}B`;
  return `${digits.slice(0, -1)}.${digits.slice(-1)} ${prefix}`;
}

/** `urllib.parse.quote` */
function quote(text: string, forQuery: boolean): string {
  let result = "";
  for (const byte of new TextEncoder().encode(text)) {
    const char = String.fromCharCode(byte);
    if (/[A-Za-z0-9_.~-]/.test(char) || (char === "/" && !forQuery)) result += char;
    else if (char === " " && forQuery) result += "+";
    else result += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return result;
}

function urlEncode(runtime: Runtime, value: Value): string {
  const { budget } = runtime;
  const isPairs =
    isList(value) ||
    value instanceof Dict ||
    value instanceof Tuple ||
    value instanceof DictView ||
    value instanceof Range;
  if (value instanceof Undefined) return "";
  if (!isPairs) {
    if (typeof value !== "string" && numberOf(value) === undefined && value !== null)
      throw unsupported(`the filter \`urlencode\` on a ${typeName(value)}`);
    return budget.made(quote(textOf(budget, value), false));
  }
  const pairs = value instanceof Dict ? new DictView(value, "items") : value;
  const parts: string[] = [];
  const iterator = iterate(budget, pairs);
  for (let next = iterator.next(); !next.done; next = iterator.next()) {
    const pair = listOf(budget, next.value);
    if (pair.length !== 2) throw valueFault("not enough values to unpack (expected 2)");
    parts.push(pair.map((part) => budget.made(quote(textOf(budget, part), true))).join("="));
  }
  return budget.made(parts.join("&"));
}

const XML_NAME = /[\t-\r />=]/;
function xmlAttributes(runtime: Runtime, value: Value, autospace: boolean): string {
  const { budget } = runtime;
  if (!(value instanceof Dict)) throw typeFault(`'${typeName(value)}' object has no attribute 'items'`);
  const parts: string[] = [];
  for (const [key, item] of value.entries()) {
    if (item === null || item instanceof Undefined) continue;
    if (typeof key !== "string") throw typeFault("expected string or bytes-like object");
    if (XML_NAME.test(key)) throw valueFault(`Invalid character in attribute name: '${key}'`);
    const shown = item instanceof Markup ? item.text : escapeHtml(textOf(budget, item));
    parts.push(budget.made(`${escapeHtml(key)}="${shown}"`));
  }
  return (autospace && parts.length > 0 ? " " : "") + parts.join(" ");
}

const length = (name: string) =>
  filter(name, "", (_, value) => {
    const found = lengthOfValue(value);
    if (found === undefined) throw typeFault(`object of type '${typeName(value)}' has no len()`);
    return found;
  });
const otherwise = (name: string) =>
  filter(name, "default_value? boolean?", (_, value, [by = "", boolean = false]) =>
    value instanceof Undefined || (truth(boolean) && !truth(value)) ? by : value,
  );

export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ...LIST_FILTERS,
  filter("abs", "", (_, value) => {
    const number = numberOf(value);
    if (number === undefined) throw typeFault(`bad operand type for abs(): '${typeName(value)}'`);
    if (number instanceof Float) return new Float(Math.abs(number.value));
    return number < 0 ? negate(number, "-") : number;
  }),
  filter("attr", "name", ({ budget }, value, [name]) => {
    if (typeof name !== "string") throw typeFault("attribute name must be string");
    return ownAttribute(budget, value, name);
  }),
  filter("capitalize", "", (runtime, value) => runtime.budget.made(capitalize(softText(runtime, value)))),
  filter("center", "width?", (runtime, value, [width = 80]) =>
    align(runtime.budget, softText(runtime, value), indexArgument(width), " ", "center"),
  ),
  length("count"),
  length("length"),
  otherwise("d"),
  otherwise("default"),
  escapeFilter("e", false),
  escapeFilter("escape", false),
  escapeFilter("forceescape", true),
  filter("filesizeformat", "binary?", (_, value, [binaryUnits = false]) => fileSize(value, truth(binaryUnits))),
  filter("float", "default?", (_, value, [by = new Float(0)]) => toFloat(value, by)),
  [
    "format",
    (runtime, value, { positional, keywords }) => {
      if (positional.length > 0 && keywords.size > 0)
        throw typeFault("can't handle positional and keyword arguments at the same time");
      const values = keywords.size > 0 ? Dict.from(keywords) : new Tuple(positional);
      return formatPercent(runtime.budget, softText(runtime, value), values);
    },
  ],
  filter("indent", "width? first? blank?", (runtime, value, [width = 4, first = false, blank = false]) =>
    indent(runtime, value, width, truth(first), truth(blank)),
  ),
  filter("int", "default? base?", (_, value, [by = 0, base = 10]) => toInteger(value, by, indexArgument(base))),
  filter("lower", "", (runtime, value) => runtime.budget.made(softText(runtime, value).toLowerCase())),
  refused("pprint"),
  refused("random"),
  filter("replace", "old new count?", (runtime, value, [old, by, count = null]) => {
    const [text, before, after] = [value, old, by].map((each) => softText(runtime, each as Value)) as [
      string,
      string,
      string,
    ];
    return replace(runtime.budget, text, before, after, count === null ? -1 : indexArgument(count));
  }),
  filter("round", "precision? method?", (runtime, value, [precision = 0, method = "common"]) =>
    round(runtime, value, precision, method),
  ),
  filter("safe", "", ({ budget }, value) => (value instanceof Markup ? value : new Markup(textOf(budget, value)))),
  filter("string", "", ({ budget }, value) => (value instanceof Markup ? value : textOf(budget, value))),
  refused("striptags"),
  filter("title", "", (runtime, value) => runtime.budget.made(titleWords(softText(runtime, value)))),
  ["tojson", ({ budget }, value, given) => toJson(budget, value, given)],
  filter("trim", "chars?", (runtime, value, [characters]) => {
    const text = softText(runtime, value);
    runtime.budget.work(text.length / 4);
    return runtime.budget.made(strip(text, characters, "both"));
  }),
  filter("truncate", "length? killwords? end? leeway?", ({ budget }, value, given) => {
    const [most = 255, kill = false, end = "...", leeway = null] = given;
    if (typeof value !== "string") throw unsupported(`the filter \`truncate\` on a ${typeName(value)}`);
    const ending = textOnly("truncate", end);
    return budget.made(
      truncateText(value, indexArgument(most), truth(kill), ending, leeway === null ? 5 : indexArgument(leeway)),
    );
  }),
  filter("upper", "", (runtime, value) => runtime.budget.made(softText(runtime, value).toUpperCase())),
  filter("urlencode", "", urlEncode),
  refused("urlize"),
  filter("wordcount", "", (runtime, value) => {
    const text = softText(runtime, value);
    runtime.budget.work(text.length);
    return (text.match(/[\p{L}\p{N}_]+/gu) ?? []).length;
  }),
  refused("wordwrap"),
  filter("xmlattr", "autospace?", (runtime, value, [autospace = true]) =>
    xmlAttributes(runtime, value, truth(autospace)),
  ),
]);
