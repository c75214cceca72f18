// The filters of jinja2 on lists and other things to iterate over.
import { getItem } from "./attributes.ts";
import { typeFault, unsupported, valueFault } from "./faults.ts";
import { binary, equals, indexArgument, iterate, listOf, order, slice, sorted, truth } from "./operators.ts";
import type { Filter, Runtime } from "./runtime.ts";
import { bind, signature } from "./signature.ts";
import { joinItems } from "./text_methods.ts";
import { textOf } from "./text_of.ts";
import {
  type Args,
  Dict,
  DictView,
  Float,
  Generator,
  GroupTuple,
  isInteger,
  isList,
  Markup,
  orElse,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
  ValueSet,
} from "./values.ts";

type Given = readonly (Value | undefined)[];

const filter = (
  name: string,
  parameters: string,
  work: (runtime: Runtime, value: Value, given: Given) => Value,
): [string, Filter] => {
  const names = signature(parameters);
  return [name, (runtime, value, given: Args) => work(runtime, value, bind(`the filter \`${name}\``, names, given))];
};

/** `str.lower` of texts, for comparisons that take no notice of case. */
const ignoreCase = (value: Value) => (typeof value === "string" ? value.toLowerCase() : value);

type Getter = (item: Value) => Value;

/** Finds an attribute such as `a.b.0` in an item. */
function getter(
  { budget }: Runtime,
  attribute: Value | undefined,
  after: Getter = (value) => value,
  by: Value = null,
): Getter {
  let parts: Value[] = [];
  if (typeof attribute === "string")
    parts = attribute.split(".").map((part) => (/^\p{Nd}+$/u.test(part) ? Number(part) : part));
  else if (attribute !== undefined && attribute !== null) parts = [attribute];
  return (item) => {
    let found = item;
    for (const part of parts) {
      found = getItem(budget, found, part);
      if (by !== null && found instanceof Undefined) found = by;
    }
    return after(found);
  };
}

/** Keys for sorting by several attributes, which have commas between them. */
function multiGetter(runtime: Runtime, attribute: Value | undefined, after: Getter): Getter {
  const attributes = typeof attribute === "string" ? attribute.split(",") : [attribute ?? null];
  const getters = attributes.map((each) => getter(runtime, each, after));
  return (item) => getters.map((get) => get(item));
}

const caseOf = (caseSensitive: Value): Getter => (truth(caseSensitive) ? (value) => value : ignoreCase);

/** Calls a function for each item when it is needed. */
function* lazily(runtime: Runtime, value: Value, each: (item: Value) => Iterable<Value>): Iterator<Value> {
  const items = iterate(runtime.budget, value);
  for (let next = items.next(); !next.done; next = items.next()) {
    runtime.budget.work(1);
    yield* each(next.value);
  }
}

/** The items for which a test (by default truth) of an item or its attribute has the wanted result. */
const selecting =
  (name: string, wanted: boolean, byAttribute: boolean): Filter =>
  (runtime, value, { positional, keywords }) =>
    new Generator(
      (function* () {
        if (!truth(value)) return;
        if (byAttribute && positional.length === 0) throw typeFault("Missing parameter for attribute name");
        const get = byAttribute ? getter(runtime, positional[0]) : (item: Value) => item;
        const [test, ...rest] = positional.slice(byAttribute ? 1 : 0);
        if (test !== undefined && typeof test !== "string")
          throw typeFault(`No test named ${typeName(test)} for \`${name}\``);
        yield* {
          [Symbol.iterator]: () =>
            lazily(runtime, value, (item) => {
              const given = get(item);
              const passes =
                test === undefined ? truth(given) : runtime.test(test, given, { positional: rest, keywords });
              return passes === wanted ? [item] : [];
            }),
        };
      })(),
    );

const map: Filter = (runtime, value, { positional, keywords }) =>
  new Generator(
    (function* () {
      if (!truth(value)) return;
      let each: Getter;
      if (positional.length === 0 && keywords.has("attribute")) {
        for (const name of keywords.keys())
          if (name !== "attribute" && name !== "default") throw typeFault(`Unexpected keyword argument '${name}'`);
        each = getter(runtime, keywords.get("attribute"), undefined, keywords.get("default") ?? null);
      } else {
        const [name, ...rest] = positional;
        if (name === undefined) throw typeFault("map requires a filter argument");
        if (typeof name !== "string") throw typeFault(`No filter named ${typeName(name)}`);
        each = (item) => runtime.filter(name, item, { positional: rest, keywords });
      }
      yield* { [Symbol.iterator]: () => lazily(runtime, value, (item) => [each(item)]) };
    })(),
  );

const extreme = (name: "min" | "max") =>
  filter(name, "case_sensitive? attribute?", (runtime, value, [caseSensitive = false, attribute]) => {
    const { budget } = runtime;
    const items = iterate(budget, value);
    const first = items.next();
    if (first.done) return new Undefined("No aggregated item, sequence was empty.");
    const key = getter(runtime, attribute, caseOf(caseSensitive));
    let best: Value = first.value;
    let bestKey = key(best);
    for (let next = items.next(); !next.done; next = items.next()) {
      const nextKey = key(next.value);
      const found = order(budget, nextKey, bestKey, name === "min" ? "<" : ">");
      if (name === "min" ? found < 0 : found > 0) {
        best = next.value;
        bestKey = nextKey;
      }
    }
    return best;
  });

const groupBy = filter("groupby", "attribute default? case_sensitive?", (runtime, value, given) => {
  const [attribute, by = null, caseSensitive = false] = given;
  const { budget } = runtime;
  const key = getter(runtime, attribute, caseOf(caseSensitive), by);
  const items = listOf(budget, value);
  const inOrder = sorted(budget, items, items.map(key), false);
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of inOrder) {
    const itemKey = key(item);
    const last = groups.at(-1);
    if (last && equals(budget, last.key, itemKey)) last.items.push(item);
    else groups.push({ key: itemKey, items: [item] });
  }
  const shown = truth(caseSensitive) ? undefined : getter(runtime, attribute, undefined, by);
  return groups.map((group) => new GroupTuple([shown ? shown(group.items[0] as Value) : group.key, group.items]));
});

function sum(runtime: Runtime, value: Value, attribute: Value | undefined, start: Value): Value {
  const { budget } = runtime;
  if (typeof start === "string") throw typeFault("sum() can't sum strings [use ''.join(seq) instead]");
  const get = attribute === undefined || attribute === null ? (item: Value) => item : getter(runtime, attribute);
  let total: Value = start;
  const items = iterate(budget, value);
  let rest = 0;
  for (let next = items.next(); !next.done; next = items.next()) {
    const item = get(next.value);
    const added = binary(budget, "+", total, item);
    if (added instanceof Float) rest += lost(total, item, added.value);
    total = added;
  }
  // From Python 3.12 on `sum` adds floats with a compensation.
  if (total instanceof Float && total.value + rest !== total.value)
    throw unsupported("a sum of floats that differs between versions of Python");
  return total;
}

/** What rounding took from a sum of two floats. */
function lost(a: Value, b: Value, total: number): number {
  const [x, y] = [a, b].map((each) => (each instanceof Float ? each.value : Number(each)));
  if (!Number.isFinite(total) || x === undefined || y === undefined) return 0;
  return Math.abs(x) >= Math.abs(y) ? x - total + y : y - total + x;
}

const sliceFilter = filter("slice", "slices fill_with?", (runtime, value, [slices, fill = null]) => {
  const count = indexArgument(slices as Value);
  return new Generator(
    (function* () {
      const items = listOf(runtime.budget, value);
      if (count === 0) throw valueFault("integer division or modulo by zero");
      const least = Math.floor(items.length / count);
      const extra = items.length - least * count;
      let offset = 0;
      for (let at = 0; at < count; at++) {
        runtime.budget.makeItems(1);
        const begin = offset + at * least;
        if (at < extra) offset++;
        const part = items.slice(begin, offset + (at + 1) * least);
        yield fill !== null && at >= extra ? [...part, fill] : part;
      }
    })(),
  );
});

const batch = filter("batch", "linecount fill_with?", (runtime, value, [count, fill = null]) => {
  const size = isInteger(count as Value) || typeof count === "boolean" ? Number(count) : undefined;
  if (size === undefined) throw unsupported("the filter `batch` without an integer");
  return new Generator(
    (function* () {
      const { budget } = runtime;
      let line: Value[] = [];
      const items = iterate(budget, value);
      for (let next = items.next(); !next.done; next = items.next()) {
        if (line.length === size) {
          yield line;
          line = [];
        }
        budget.makeItems(1);
        line.push(next.value);
      }
      if (line.length === 0) return;
      if (fill !== null && line.length < size) {
        budget.makeItems(size - line.length);
        line = line.concat(Array.from({ length: size - line.length }, () => fill));
      }
      yield line;
    })(),
  );
});

function reverse(runtime: Runtime, value: Value): Value {
  const { budget } = runtime;
  if (typeof value === "string") return slice(budget, value, null, null, -1);
  if (value instanceof Markup) throw unsupported("the filter `reverse` on the result of `safe` or `escape`");
  const isSequence =
    isList(value) ||
    value instanceof Tuple ||
    value instanceof Range ||
    value instanceof Dict ||
    value instanceof DictView;
  const items = [...listOf(budget, value)].reverse();
  if (!isSequence) {
    if (value instanceof Generator) return items;
    if (value instanceof Undefined) return new Generator(items[Symbol.iterator]());
    throw typeFault("argument must be iterable");
  }
  return new Generator(items[Symbol.iterator]());
}

function first({ budget }: Runtime, value: Value): Value {
  const next = iterate(budget, value).next();
  return next.done ? new Undefined("No first item, sequence was empty.") : next.value;
}

function last(runtime: Runtime, value: Value): Value {
  const { budget } = runtime;
  if (typeof value === "string") {
    const found = getItem(budget, value, -1);
    return found instanceof Undefined ? new Undefined("No last item, sequence was empty.") : found;
  }
  if (value instanceof Generator) throw typeFault("'generator' object is not reversible");
  return orElse(listOf(budget, value).at(-1), () => new Undefined("No last item, sequence was empty."));
}

const dictSort = filter("dictsort", "case_sensitive? by? reverse?", (runtime, value, given) => {
  const [caseSensitive = false, by = "key", backwards = false] = given;
  if (by !== "key" && by !== "value") throw valueFault('You can only sort by either "key" or "value"');
  if (value instanceof Undefined) throw value.fault();
  if (!(value instanceof Dict)) throw typeFault(`'${typeName(value)}' object has no attribute 'items'`);
  const entries = [...value.entries()];
  const keys = entries.map((entry) => caseOf(caseSensitive)(entry[by === "key" ? 0 : 1]));
  const pairs = entries.map((entry) => new Tuple(entry));
  return sorted(runtime.budget, pairs, keys, truth(backwards));
});

function items(_: Runtime, value: Value): Value {
  return new Generator(
    (function* () {
      if (value instanceof Undefined) return;
      if (!(value instanceof Dict)) throw typeFault("Can only get item pairs from a mapping.");
      yield* { [Symbol.iterator]: () => new DictView(value, "items")[Symbol.iterator]() };
    })(),
  );
}

const unique = filter("unique", "case_sensitive? attribute?", (runtime, value, [caseSensitive = false, attribute]) => {
  const key = getter(runtime, attribute, caseOf(caseSensitive));
  return new Generator(
    (function* () {
      const seen = new ValueSet();
      yield* {
        [Symbol.iterator]: () =>
          lazily(runtime, value, (item) => {
            runtime.budget.makeItems(1);
            return seen.add(key(item)) ? [item] : [];
          }),
      };
    })(),
  );
});

export const LIST_FILTERS: readonly (readonly [string, Filter])[] = [
  batch,
  dictSort,
  filter("first", "", first),
  groupBy,
  filter("items", "", items),
  filter("join", "d? attribute?", (runtime, value, [separator = "", attribute = null]) => {
    const { budget } = runtime;
    const get = attribute === null ? (item: Value) => item : getter(runtime, attribute);
    return joinItems(budget, textOf(budget, separator), value, (item) => textOf(budget, get(item)));
  }),
  filter("last", "", last),
  filter("list", "", ({ budget }, value) => listOf(budget, value)),
  ["map", map],
  extreme("max"),
  extreme("min"),
  ["reject", selecting("reject", false, false)],
  ["rejectattr", selecting("rejectattr", false, true)],
  filter("reverse", "", reverse),
  ["select", selecting("select", true, false)],
  ["selectattr", selecting("selectattr", true, true)],
  sliceFilter,
  filter("sort", "reverse? case_sensitive? attribute?", (runtime, value, given) => {
    const [backwards = false, caseSensitive = false, attribute] = given;
    const list = listOf(runtime.budget, value);
    const key = multiGetter(runtime, attribute, caseOf(caseSensitive));
    return sorted(runtime.budget, list, list.map(key), truth(backwards));
  }),
  filter("sum", "attribute? start?", (runtime, value, [attribute, start = 0]) => sum(runtime, value, attribute, start)),
  unique,
];
