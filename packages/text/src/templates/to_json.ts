// The filter `tojson` as transformers defines it: `json.dumps(value, ensure_ascii, indent, separators, sort_keys)`.
import type { Budget } from "./budget.ts";
import { typeFault } from "./faults.ts";
import { floatRepr } from "./numbers.ts";
import { listOf, sorted, truth } from "./operators.ts";
import { bind, signature } from "./signature.ts";
import { type Args, Dict, Float, isInteger, isList, Markup, Tuple, typeName, type Value } from "./values.ts";

const PARAMETERS = signature("ensure_ascii? indent? separators? sort_keys?");
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what JSON escapes
const ESCAPED = /["\\\x00-\x1f]/g;
const NOT_ASCII = /[^\0-\x7e]/g;
const SHORT: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\b": "\\b",
  "\f": "\\f",
};
const unit = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;

interface Style {
  ascii: boolean;
  indent: string | undefined;
  itemSeparator: string;
  keySeparator: string;
  sortKeys: boolean;
}

export function toJson(budget: Budget, value: Value, given: Args): string {
  const [ascii = false, indent = null, separators = null, sortKeys = false] = bind("tojson", PARAMETERS, given);
  let [itemSeparator, keySeparator] = [indent === null ? ", " : ",", ": "];
  if (separators !== null) {
    const list = listOf(budget, separators);
    if (list.length !== 2 || typeof list[0] !== "string" || typeof list[1] !== "string")
      throw typeFault("separators must be two texts");
    [itemSeparator, keySeparator] = list as readonly [string, string];
  }
  const style = {
    ascii: truth(ascii),
    indent: indentOf(budget, indent),
    itemSeparator,
    keySeparator,
    sortKeys: truth(sortKeys),
  };
  const writer = new JsonWriter(budget, style);
  writer.write(value, "\n");
  return writer.parts.join("");
}

function indentOf(budget: Budget, indent: Value): string | undefined {
  if (indent === null) return undefined;
  if (typeof indent === "string") return indent;
  if (!isInteger(indent) && typeof indent !== "boolean")
    throw typeFault(`can't multiply sequence by non-int of type '${typeName(indent)}'`);
  const width = Math.max(0, Number(indent));
  budget.make(width);
  return " ".repeat(width);
}

class JsonWriter {
  readonly parts: string[] = [];
  private readonly budget: Budget;
  private readonly style: Style;

  constructor(budget: Budget, style: Style) {
    this.budget = budget;
    this.style = style;
  }

  private push(text: string): void {
    this.budget.make(text.length);
    this.budget.work(1);
    this.parts.push(text);
  }

  private text(text: string): string {
    this.budget.work(text.length / 8);
    const escaped = text.replace(ESCAPED, (char) => SHORT[char] ?? unit(char));
    return `"${this.style.ascii ? escaped.replace(NOT_ASCII, unit) : escaped}"`;
  }

  /** A value that holds no others. */
  private plain(value: Value): string | undefined {
    if (typeof value === "string") return this.text(value);
    if (value instanceof Markup) return this.text(value.text);
    if (value === null) return "null";
    if (typeof value === "boolean" || isInteger(value)) return String(value);
    if (!(value instanceof Float)) return undefined;
    const number = value.value;
    if (Number.isFinite(number)) return floatRepr(number);
    return Number.isNaN(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
  }

  private key(key: Value): string {
    if (typeof key === "string") return this.text(key);
    const plain = key instanceof Markup || isList(key) ? undefined : this.plain(key);
    if (plain === undefined) throw typeFault(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
    return `"${plain}"`;
  }

  /** `line`: what begins a line at the place of the value. */
  write(value: Value, line: string): void {
    this.budget.work(1);
    const plain = this.plain(value);
    if (plain !== undefined) {
      this.push(plain);
      return;
    }
    this.budget.enter();
    if (isList(value)) this.all(value, "[]", line, (item, inner) => this.write(item, inner));
    else if (value instanceof Tuple) this.all(value.items, "[]", line, (item, inner) => this.write(item, inner));
    else if (value instanceof Dict)
      this.all(this.entries(value), "{}", line, ([key, item], inner) => {
        this.push(this.key(key));
        this.push(this.style.keySeparator);
        this.write(item, inner);
      });
    else throw typeFault(`Object of type ${typeName(value)} is not JSON serializable`);
    this.budget.leave();
  }

  private entries(dict: Dict): (readonly [Value, Value])[] {
    const entries = [...dict.entries()];
    if (!this.style.sortKeys) return entries;
    const pairs = entries.map((entry) => new Tuple(entry));
    return sorted(this.budget, pairs, pairs, false).map((pair) => (pair as Tuple).items as readonly [Value, Value]);
  }

  private all<T>(items: readonly T[], brackets: string, line: string, write: (item: T, inner: string) => void): void {
    if (items.length === 0) {
      this.push(brackets);
      return;
    }
    const { indent, itemSeparator } = this.style;
    const inner = indent === undefined ? "" : line + indent;
    this.push(brackets.charAt(0) + inner);
    for (const [at, item] of items.entries()) {
      if (at > 0) this.push(itemSeparator + inner);
      write(item, inner);
    }
    this.push((indent === undefined ? "" : line) + brackets.charAt(1));
  }
}
