// Operators of Python on the values of a template.
import type { Budget } from "./budget.ts";
import { codePoints, compareTexts, hasSurrogates, lengthOf } from "./characters.ts";
import { typeFault, unsupported, valueFault } from "./faults.ts";
import { formatPercent } from "./format.ts";
import type { BinaryOperator, Comparison } from "./nodes.ts";
import { arithmetic, compareNumbers, integer, numberOf } from "./numbers.ts";
import {
  Dict,
  DictView,
  Float,
  Generator,
  isInteger,
  isList,
  Markup,
  Native,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** `len(value)`; undefined for what has none. */
export function lengthOfValue(value: Value): number | undefined {
  if (typeof value === "string") return lengthOf(value);
  if (isList(value)) return value.length;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Undefined) return 0;
  if (value instanceof Markup) return lengthOf(value.text);
  if (value instanceof Native) {
    const length = value.attribute("length");
    return value.typeName === "LoopContext" && typeof length === "number" ? length : undefined;
  }
  return undefined;
}

/** `bool(value)` */
export function truth(value: Value): boolean {
  if (typeof value === "boolean") return value;
  if (typeof value === "string") return value !== "";
  if (value === null || value === 0) return false;
  if (isInteger(value)) return true;
  if (value instanceof Float) return value.value !== 0;
  if (value instanceof Native) return true;
  const length = lengthOfValue(value);
  return length === undefined || length > 0;
}

/** `iter(value)` */
export function iterate(budget: Budget, value: Value): Iterator<Value> {
  const items = iterable(budget, value);
  if (!items) throw typeFault(`'${typeName(value)}' object is not iterable`);
  return items[Symbol.iterator]();
}

/** What can be iterated over; undefined for the rest. */
export function iterable(budget: Budget, value: Value): Iterable<Value> | undefined {
  if (typeof value === "string") {
    budget.makeItems(value.length);
    return codePoints(value);
  }
  if (isList(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (value instanceof Dict) return value.keys();
  if (value instanceof DictView || value instanceof Generator) return value;
  if (value instanceof Range) return rangeItems(value);
  if (value instanceof Undefined) return [];
  if (value instanceof Markup) throw unsupported("iterating over the result of `safe` or `escape`");
  if (value instanceof Native && value.typeName === "LoopContext") throw unsupported("iterating over `loop`");
  return undefined;
}

function* rangeItems(range: Range): Iterable<number> {
  for (let index = 0; index < range.length; index++) yield range.at(index);
}

/** `list(value)` */
export function listOf(budget: Budget, value: Value): readonly Value[] {
  const known = lengthOfValue(value);
  if (known !== undefined) budget.makeItems(known);
  if (isList(value)) return value;
  const list: Value[] = [];
  const items = iterate(budget, value);
  for (let next = items.next(); !next.done; next = items.next()) {
    if (known === undefined) budget.makeItems(1);
    list.push(next.value);
  }
  return list;
}

const itemsOf = (value: Value): readonly Value[] | undefined =>
  isList(value) ? value : value instanceof Tuple ? value.items : undefined;

/** `a == b` */
export function equals(budget: Budget, a: Value, b: Value): boolean {
  budget.work(1);
  if (typeof a === "string" || typeof b === "string") {
    const [x, y] = [a, b].map((value) => (value instanceof Markup ? value.text : value));
    return x === y;
  }
  const x = numberOf(a);
  const y = numberOf(b);
  if (x !== undefined && y !== undefined) return compareNumbers(x, y) === 0;
  if (a === b) return true;
  if (a === null || b === null || x !== undefined || y !== undefined) return false;
  if (a instanceof Undefined) return b instanceof Undefined;
  if (a instanceof Markup) return b instanceof Markup && a.text === b.text;
  if (a instanceof Range)
    return (
      b instanceof Range &&
      a.length === b.length &&
      (a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step)))
    );
  if (a instanceof DictView && b instanceof DictView && a.part !== "values")
    throw unsupported("comparing views of dicts");
  if (isList(a) !== isList(b) || a instanceof Tuple !== b instanceof Tuple) return false;
  const [items, others] = [itemsOf(a), itemsOf(b)];
  if (items && others) {
    if (items.length !== others.length) return false;
    budget.enter();
    const same = items.every((item, at) => isSameItem(budget, item, others[at] as Value));
    budget.leave();
    return same;
  }
  if (!(a instanceof Dict && b instanceof Dict) || a.size !== b.size) return false;
  budget.enter();
  let same = true;
  for (const [key, item] of a.entries()) {
    const other = b.get(key);
    if (other === undefined || !isSameItem(budget, item, other)) {
      same = false;
      break;
    }
  }
  budget.leave();
  return same;
}

/** Equality of items of lists and dicts, for which the same object is equal to itself, even NaN. */
const isSameItem = (budget: Budget, a: Value, b: Value) =>
  a === b && typeof a === "object" ? true : equals(budget, a, b);

/** Below, equal, above: -1, 0 or 1, and NaN where a NaN is compared. */
export function order(budget: Budget, a: Value, b: Value, operator: string): number {
  budget.work(1);
  if (typeof a === "string" && typeof b === "string") return compareTexts(a, b);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return compareNumbers(x, y);
  if (a instanceof Undefined) throw a.fault();
  if (b instanceof Undefined) throw b.fault();
  const [items, others] = [itemsOf(a), itemsOf(b)];
  if (items && others && isList(a) === isList(b)) {
    budget.enter();
    try {
      for (let at = 0; at < Math.min(items.length, others.length); at++) {
        const [item, other] = [items[at] as Value, others[at] as Value];
        if (!isSameItem(budget, item, other)) return order(budget, item, other, operator);
      }
    } finally {
      budget.leave();
    }
    return Math.sign(items.length - others.length);
  }
  if (a instanceof Markup || b instanceof Markup) throw unsupported("ordering the result of `safe` or `escape`");
  if (a instanceof DictView || b instanceof DictView) throw unsupported("ordering views of dicts");
  throw typeFault(`'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

/** `item in container` */
export function contains(budget: Budget, container: Value, item: Value): boolean {
  if (typeof container === "string") {
    if (item instanceof Markup) return contains(budget, container, item.text);
    if (typeof item !== "string")
      throw typeFault(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    budget.work(container.length / 8);
    return containsText(container, item);
  }
  if (container instanceof Markup) return contains(budget, container.text, item);
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.part === "keys") return container.dict.has(item);
  const items = iterable(budget, container);
  if (!items) throw typeFault(`argument of type '${typeName(container)}' is not iterable`);
  const iterator = items[Symbol.iterator]();
  for (let next = iterator.next(); !next.done; next = iterator.next())
    if (isSameItem(budget, next.value, item)) return true;
  return false;
}

const containsText = (text: string, part: string) => indexOf(text, part, 0) >= 0;

/** Where a part begins, in code units, without finding half a character. */
export function indexOf(text: string, part: string, from: number): number {
  const first = part.charCodeAt(0);
  const last = part.charCodeAt(part.length - 1);
  for (let at = text.indexOf(part, from); ; at = text.indexOf(part, at + 1)) {
    if (at < 0 || part === "") return at;
    const splitsFirst = first >= 0xdc00 && first < 0xe000 && isHigh(text.charCodeAt(at - 1));
    const splitsLast = isHigh(last) && isLow(text.charCodeAt(at + part.length));
    if (!splitsFirst && !splitsLast) return at;
  }
}
const isHigh = (code: number) => code >= 0xd800 && code < 0xdc00;
const isLow = (code: number) => code >= 0xdc00 && code < 0xe000;

export function compare(budget: Budget, operator: Comparison, a: Value, b: Value): boolean {
  switch (operator) {
    case "==":
      return equals(budget, a, b);
    case "!=":
      return !equals(budget, a, b);
    case "in":
      return contains(budget, b, a);
    case "not in":
      return !contains(budget, b, a);
  }
  const found = order(budget, a, b, operator);
  return operator === "<" ? found < 0 : operator === "<=" ? found <= 0 : operator === ">" ? found > 0 : found >= 0;
}

/** A text or list several times. */
function repeat(budget: Budget, value: Value, times: Value): Value | undefined {
  const count = typeof times === "boolean" ? Number(times) : times;
  if (!isInteger(count)) return undefined;
  const most = Math.max(0, Number(count));
  if (typeof value === "string") {
    budget.make(value.length * most);
    return value.repeat(most);
  }
  const items = itemsOf(value);
  if (!items) return undefined;
  budget.makeItems(items.length * most);
  const list = Array.from({ length: items.length * most }, (_, at) => items[at % items.length] as Value);
  return isList(value) ? list : new Tuple(list);
}

/** `a operator b` */
export function binary(budget: Budget, operator: BinaryOperator, a: Value, b: Value): Value {
  const number = arithmetic(budget, operator, a, b);
  if (number !== undefined) return number;
  // A text formats whatever comes after `%`.
  if (operator === "%" && typeof a === "string") return formatPercent(budget, a, b);
  if (a instanceof Undefined) throw a.fault();
  if (b instanceof Undefined) throw b.fault();
  if (a instanceof Markup || b instanceof Markup)
    throw unsupported(`\`${operator}\` on the result of \`safe\` or \`escape\``);
  if (operator === "+") {
    if (typeof a === "string" && typeof b === "string") {
      budget.make(a.length + b.length);
      return a + b;
    }
    const [items, others] = [itemsOf(a), itemsOf(b)];
    if (items && others && isList(a) === isList(b)) {
      budget.makeItems(items.length + others.length);
      const both = items.concat(others);
      return isList(a) ? both : new Tuple(both);
    }
  }
  if (operator === "*") {
    const repeated = repeat(budget, a, b) ?? repeat(budget, b, a);
    if (repeated !== undefined) return repeated;
  }
  if (operator === "-" && a instanceof DictView && b instanceof DictView)
    throw unsupported("the difference of views of dicts");
  throw typeFault(`unsupported operand type(s) for ${operator}: '${typeName(a)}' and '${typeName(b)}'`);
}

/** An index among `length` items; undefined where there is none. */
function indexIn(length: number, key: Value): number | undefined {
  const index = typeof key === "boolean" ? Number(key) : key;
  if (typeof index !== "number") return undefined;
  const at = index < 0 ? index + length : index;
  return at >= 0 && at < length ? at : undefined;
}

/** `value[key]` by index or key; undefined where Python raises a TypeError or LookupError. */
export function itemOf(budget: Budget, value: Value, key: Value): Value | undefined {
  if (value instanceof Dict) {
    if (isList(key) || key instanceof Dict) return undefined;
    return value.get(key);
  }
  if (value instanceof Undefined) throw value.fault();
  if (typeof value === "string") {
    if (!hasSurrogates(value)) {
      const at = indexIn(value.length, key);
      return at === undefined ? undefined : value[at];
    }
    budget.work(value.length);
    const characters = codePoints(value);
    const at = indexIn(characters.length, key);
    return at === undefined ? undefined : characters[at];
  }
  if (value instanceof Markup && typeof key !== "string")
    throw unsupported("an index into the result of `safe` or `escape`");
  const items = itemsOf(value);
  if (items) {
    const at = indexIn(items.length, key);
    return at === undefined ? undefined : items[at];
  }
  if (!(value instanceof Range)) return undefined;
  const at = indexIn(value.length, key);
  return at === undefined ? undefined : value.at(at);
}

/** The bound of a slice: an integer, or null where it is left out. */
function boundOf(value: Value): number | null {
  if (value === null) return null;
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "bigint") return value < 0n ? Number.MIN_SAFE_INTEGER : Number.MAX_SAFE_INTEGER;
  if (typeof value === "number") return value;
  throw typeFault("slice indices must be integers or None or have an __index__ method");
}

/** `slice(from, to, step).indices(length)`: first index, end, step. */
function indices(length: number, from: Value, to: Value, by: Value): [number, number, number] {
  const step = boundOf(by) ?? 1;
  if (step === 0) throw valueFault("slice step cannot be zero");
  const [low, high] = step < 0 ? [-1, length - 1] : [0, length];
  const clamp = (bound: number | null, otherwise: number) =>
    bound === null ? otherwise : Math.min(high, Math.max(low, bound < 0 ? bound + length : bound));
  return [clamp(boundOf(from), step < 0 ? high : low), clamp(boundOf(to), step < 0 ? low : high), step];
}

function sliced<T>(items: readonly T[], [from, to, step]: [number, number, number]): T[] {
  if (step === 1) return items.slice(from, Math.max(from, to));
  const result: T[] = [];
  for (let at = from; step > 0 ? at < to : at > to; at += step) result.push(items[at] as T);
  return result;
}

/** `value[from:to:step]` */
export function slice(budget: Budget, value: Value, from: Value, to: Value, step: Value): Value {
  if (typeof value === "string") {
    budget.work(value.length / 8);
    if (!hasSurrogates(value)) {
      const bounds = indices(value.length, from, to, step);
      if (bounds[2] === 1) return budget.made(value.slice(bounds[0], Math.max(bounds[0], bounds[1])));
    }
    budget.makeItems(value.length / 8);
    const characters = codePoints(value);
    return budget.made(sliced(characters, indices(characters.length, from, to, step)).join(""));
  }
  const items = itemsOf(value);
  if (items) {
    const result = sliced(items, indices(items.length, from, to, step));
    budget.makeItems(result.length);
    return isList(value) ? result : new Tuple(result);
  }
  if (value instanceof Range) {
    const [first, end, by] = indices(value.length, from, to, step);
    return new Range(value.at(first), value.at(end), value.step * by);
  }
  if (value instanceof Undefined) throw value.fault();
  if (value instanceof Markup) throw unsupported("a slice of the result of `safe` or `escape`");
  throw typeFault(`'${typeName(value)}' object is not subscriptable`);
}

/** Sorts as Python does: stable, by `<` alone. */
export function sorted(budget: Budget, values: readonly Value[], keys: readonly Value[], reverse: boolean): Value[] {
  budget.makeItems(values.length);
  const sign = reverse ? -1 : 1;
  const compareKeys = (a: number, b: number) => {
    const found = order(budget, keys[a] as Value, keys[b] as Value, "<");
    if (Number.isNaN(found)) throw unsupported("sorting NaN");
    return sign * found;
  };
  return values
    .map((_, at) => at)
    .sort(compareKeys)
    .map((at) => values[at] as Value);
}

/** A count of characters or items that a call takes, as `operator.index` allows. */
export function indexArgument(value: Value): number {
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(integer(value));
  if (value instanceof Undefined) throw typeFault("'Undefined' object cannot be interpreted as an integer");
  throw typeFault(`'${typeName(value)}' object cannot be interpreted as an integer`);
}
