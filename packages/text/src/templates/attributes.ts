// Attributes and methods of values, as the sandbox of jinja2 gives them out.
import type { Budget } from "./budget.ts";
import { textRepr } from "./characters.ts";
import { unsupported, valueFault } from "./faults.ts";
import { formatBraces } from "./format.ts";
import { integer, truncate } from "./numbers.ts";
import { equals, indexArgument, itemOf, iterate, listOf } from "./operators.ts";
import { bind, positionalOnly, signature } from "./signature.ts";
import { TEXT_METHODS } from "./text_methods.ts";
import { reprOf } from "./text_of.ts";
import {
  type Args,
  Callable,
  Dict,
  DictView,
  Float,
  GroupTuple,
  isInteger,
  isList,
  Markup,
  Namespace,
  Native,
  orElse,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));

/** Attributes of Python's classes that are not among the methods here. */
const OTHERS: Readonly<Record<string, ReadonlySet<string>>> = {
  str: words("encode maketrans"),
  dict: words("fromkeys"),
  int: words("as_integer_ratio bit_count conjugate from_bytes to_bytes"),
  bool: words("as_integer_ratio bit_count conjugate from_bytes to_bytes"),
  float: words("as_integer_ratio conjugate fromhex hex"),
  range: words("count index"),
  dict_keys: words("isdisjoint mapping"),
  dict_values: words("mapping"),
  dict_items: words("isdisjoint mapping"),
  generator: words("close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw"),
};
/** Methods that change a list or dict, which the sandbox gives to nobody. */
const CHANGING: Readonly<Record<string, ReadonlySet<string>>> = {
  list: words("append clear pop reverse insert sort extend remove"),
  dict: words("clear pop popitem setdefault update"),
};
/** Attributes of every object of Python, and of the functions, numbers and containers among them. */
const INTERNAL = words(
  "__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ __gt__ __hash__ __init__ " +
    "__init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ __str__ " +
    "__subclasshook__ __iter__ __len__ __getitem__ __contains__ __add__ __mul__ __rmul__ __class_getitem__ __reversed__ " +
    "__or__ __ror__ __ior__ __setitem__ __delitem__ __getnewargs__ __mod__ __rmod__ __iadd__ __imul__ __call__ __name__ " +
    "__qualname__ __module__ __self__ __dict__ __globals__ __code__ __closure__ __bool__ __int__ __float__ __next__",
);

type Get = (budget: Budget, self: never, given: Args) => Value;
const method = <T extends Value>(name: string, get: (budget: Budget, self: T, given: Args) => Value): [string, Get] => [
  name,
  get as unknown as Get,
];
const GET = signature("key default?");

const DICT_METHODS = new Map<string, Get>([
  method<Dict>("get", (_, self, given) => {
    positionalOnly("get", given, 1, 2);
    const [key, otherwise = null] = bind("get", GET, given);
    return orElse(self.get(key as Value), () => otherwise);
  }),
  ...(["keys", "values", "items"] as const).map((part) =>
    method<Dict>(part, (_, self, given) => {
      positionalOnly(part, given, 0, 0);
      return new DictView(self, part);
    }),
  ),
  method<Dict>("copy", (budget, self, given) => {
    positionalOnly("copy", given, 0, 0);
    budget.makeItems(2 * self.size);
    return Dict.from(self.entries());
  }),
]);

function indexOfItem(budget: Budget, items: readonly Value[], given: Args, type: string): Value {
  const [wanted, start = 0, stop = items.length] = positionalOnly("index", given, 1, 3);
  const bound = (value: Value) => {
    const at = indexArgument(value);
    return at < 0 ? Math.max(0, at + items.length) : at;
  };
  for (let at = bound(start); at < Math.min(bound(stop), items.length); at++)
    if (equals(budget, items[at] as Value, wanted as Value)) return at;
  throw valueFault(`${reprOf(budget, wanted as Value)} is not in ${type}`);
}

const itemMethods = (type: "list" | "tuple"): [string, Get][] => {
  const itemsOf = (self: Value) => (self instanceof Tuple ? self.items : (self as readonly Value[]));
  return [
    method<Value>("count", (budget, self, given) => {
      const [wanted] = positionalOnly("count", given, 1, 1);
      return itemsOf(self).filter((item) => equals(budget, item, wanted as Value)).length;
    }),
    method<Value>("index", (budget, self, given) => indexOfItem(budget, itemsOf(self), given, type)),
  ];
};
const LIST_METHODS = new Map([
  ...itemMethods("list"),
  method<readonly Value[]>("copy", (budget, self, given) => {
    positionalOnly("copy", given, 0, 0);
    budget.makeItems(self.length);
    return [...self];
  }),
]);
const TUPLE_METHODS = new Map(itemMethods("tuple"));

const bitLength = method<Value>("bit_length", (_, self) => {
  const whole = BigInt(self as number);
  return whole === 0n ? 0 : (whole < 0n ? -whole : whole).toString(2).length;
});
const INTEGER_METHODS = new Map([bitLength]);
const FLOAT_METHODS = new Map([method<Float>("is_integer", (_, self) => Number.isInteger(self.value))]);

/** The plain attributes of numbers and ranges. */
function field(value: Value, name: string): Value | undefined {
  if (isInteger(value) || typeof value === "boolean") {
    if (name === "real" || name === "numerator") return typeof value === "boolean" ? Number(value) : value;
    return name === "imag" ? 0 : name === "denominator" ? 1 : undefined;
  }
  if (value instanceof Float) return name === "real" ? value : name === "imag" ? new Float(0) : undefined;
  if (value instanceof GroupTuple)
    return name === "grouper" ? value.items[0] : name === "list" ? value.items[1] : undefined;
  if (value instanceof Range && (name === "start" || name === "stop" || name === "step")) return value[name];
  return undefined;
}

function methodsOf(value: Value): ReadonlyMap<string, Get> | undefined {
  if (typeof value === "string") return TEXT_METHODS as unknown as ReadonlyMap<string, Get>;
  if (value instanceof Dict) return DICT_METHODS;
  if (isList(value)) return LIST_METHODS;
  if (value instanceof Tuple) return TUPLE_METHODS;
  if (isInteger(value) || typeof value === "boolean") return INTEGER_METHODS;
  return value instanceof Float ? FLOAT_METHODS : undefined;
}

/** An attribute that Python's own object has; undefined where it has none of that name. */
function attributeOf(budget: Budget, value: Value, name: string): Value | undefined {
  const type = typeName(value);
  const unsafe = () => new Undefined(`access to attribute '${name}' of '${type}' object is unsafe.`, "security");
  if (value instanceof Namespace)
    return INTERNAL.has(name) && name === "__class__" ? unsafe() : value.attributes.get(name);
  if (INTERNAL.has(name)) return unsafe();
  if (value instanceof Native) return value.attribute(name);
  if (value instanceof Markup) throw unsupported(`\`.${name}\` of the result of \`safe\` or \`escape\``);
  if (Object.hasOwn(CHANGING, type) && CHANGING[type]?.has(name)) return unsafe();
  const found = methodsOf(value)?.get(name);
  if (found) return new Callable(name, (given) => found(budget, value as never, given));
  if (typeof value === "string" && (name === "format" || name === "format_map"))
    return new Callable(name, (given) => formatText(budget, value, name, given));
  if (Object.hasOwn(OTHERS, type) && OTHERS[type]?.has(name)) throw unsupported(`\`.${name}\` of a ${type}`);
  return field(value, name);
}

/** How jinja2 names an object in messages. */
const shown = (value: Value) => (value === null ? "None" : `${typeName(value)} object`);

function missing(budget: Budget, value: Value, key: Value): Undefined {
  return new Undefined(
    typeof key === "string"
      ? `'${shown(value)}' has no attribute ${textRepr(key)}`
      : `${shown(value)} has no element ${reprOf(budget, key)}`,
  );
}

/** `value.name` */
export function getAttribute(budget: Budget, value: Value, name: string): Value {
  if (value instanceof Undefined && !INTERNAL.has(name)) throw value.fault();
  const attribute = attributeOf(budget, value, name);
  return attribute === undefined ? orElse(itemOf(budget, value, name), () => missing(budget, value, name)) : attribute;
}

/** `value[key]` */
export function getItem(budget: Budget, value: Value, key: Value): Value {
  const item = itemOf(budget, value, key);
  if (item !== undefined) return item;
  const attribute = typeof key === "string" ? attributeOf(budget, value, key) : undefined;
  return orElse(attribute, () => missing(budget, value, key));
}

/** An attribute that Python's own object has, for the filter `attr`. */
export function ownAttribute(budget: Budget, value: Value, name: string): Value {
  if (value instanceof Undefined) throw value.fault();
  return orElse(attributeOf(budget, value, name), () => missing(budget, value, name));
}

/** `str.format` and `str.format_map` */
function formatText(budget: Budget, text: string, name: string, given: Args): Value {
  let { positional, keywords } = given;
  if (name === "format_map") {
    const [dict] = positionalOnly(name, given, 1, 1);
    if (!(dict instanceof Dict)) throw unsupported("format_map without a dict");
    positional = [];
    keywords = new Map([...dict.entries()].flatMap(([key, item]) => (typeof key === "string" ? [[key, item]] : [])));
  }
  return formatBraces(budget, text, (path, automatic) => {
    const [, first = "", rest = ""] = /^([^.[]*)([\s\S]*)$/.exec(path) ?? [];
    let value = /^\d*$/.test(first) ? positional[first === "" ? automatic() : Number(first)] : keywords.get(first);
    if (value === undefined)
      throw valueFault(
        /^\d*$/.test(first) ? "Replacement index out of range for positional args tuple" : `KeyError: '${first}'`,
      );
    for (const [, attribute, key] of rest.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g))
      value =
        attribute !== undefined
          ? getAttribute(budget, value, attribute)
          : getItem(budget, value, /^\d+$/.test(key as string) ? Number(key) : (key as string));
    return value;
  });
}

/** The entries of what `dict(…)` takes: a dict, or pairs. */
export function entriesOf(budget: Budget, value: Value): Iterable<readonly [Value, Value]> {
  if (value instanceof Dict) return value.entries();
  const entries: [Value, Value][] = [];
  const pairs = iterate(budget, value);
  for (let next = pairs.next(); !next.done; next = pairs.next()) {
    const pair = listOf(budget, next.value);
    if (pair.length !== 2)
      throw valueFault(
        `dictionary update sequence element #${entries.length} has length ${pair.length}; 2 is required`,
      );
    entries.push([pair[0] as Value, pair[1] as Value]);
  }
  return entries;
}

/** `int(value, base)` of a text; undefined where Python raises a ValueError. */
export function parseInteger(text: string, base: number): number | bigint | undefined {
  const [, sign = "", prefix = "", digits = ""] = /^([+-]?)(0[xob])?([\da-z]+(?:_[\da-z]+)*)$/i.exec(text.trim()) ?? [];
  if (digits === "") return undefined;
  const bases: Readonly<Record<string, number>> = { "0x": 16, "0o": 8, "0b": 2 };
  const prefixBase = bases[prefix.toLowerCase()];
  let value = digits.replaceAll("_", "");
  let radix = base;
  if (prefix !== "") {
    if (base === 0 || base === prefixBase) radix = prefixBase as number;
    else value = prefix + value;
  } else if (base === 0) {
    if (/^0+[^0]/.test(value)) return undefined;
    radix = 10;
  }
  if (radix < 2 || radix > 36) throw valueFault("int() base must be >= 2 and <= 36, or 0");
  let result = 0n;
  if (value.length > 4300) return undefined;
  for (const char of value.toLowerCase()) {
    const digit = Number.parseInt(char, 36);
    if (!(digit < radix)) return undefined;
    result = result * BigInt(radix) + BigInt(digit);
  }
  return integer(sign === "-" ? -result : result);
}

/** `float(text)`; undefined where Python raises a ValueError. */
export function parseDouble(text: string): number | undefined {
  const plain = text.trim().toLowerCase();
  const special = /^([+-]?)(inf|infinity|nan)$/.exec(plain);
  if (special) return special[2] === "nan" ? Number.NaN : special[1] === "-" ? -Infinity : Infinity;
  if (!/^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[+-]?\d+(_\d+)*)?$/.test(plain)) return undefined;
  return Number(plain.replaceAll("_", ""));
}

/** `int(value)` of a number; undefined for other kinds of values. */
export function wholeOf(value: Value): number | bigint | undefined {
  if (typeof value === "boolean") return Number(value);
  if (value instanceof Float) return truncate(value.value);
  if (value instanceof Undefined) throw value.fault();
  return isInteger(value) ? value : undefined;
}
