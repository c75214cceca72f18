// The values of a template, as Python has them. Integers are JavaScript numbers, or bigints beyond 2⁵³; lists are arrays:
// nothing in a template changes them.
import { Fault, type FaultKind, typeFault, unsupported } from "./faults.ts";

/** A Python float: told apart from integers, also where it has no fraction. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

export class Tuple {
  readonly items: readonly Value[];
  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** A pair that the filter `groupby` gives: also with the attributes `grouper` and `list`. */
export class GroupTuple extends Tuple {}

export class Range {
  readonly start: number;
  readonly stop: number;
  readonly step: number;
  readonly length: number;
  constructor(start: number, stop: number, step: number) {
    this.start = start;
    this.stop = stop;
    this.step = step;
    this.length = Math.max(0, Math.ceil((stop - start) / step));
  }
  at(index: number): number {
    return this.start + index * this.step;
  }
}

/** Something that is not there. It prints as nothing, and most operations on it fail. */
export class Undefined {
  readonly message: string;
  readonly kind: FaultKind;
  constructor(message: string, kind: FaultKind = "undefined") {
    this.message = message;
    this.kind = kind;
  }
  fault(): Fault {
    return new Fault(this.kind, this.message);
  }
}

/** A text that the filters `safe` and `escape` give: printed as it is. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** What filters such as `map` give: items that are made when they are needed, once. */
export class Generator implements Iterable<Value> {
  private readonly items: Iterator<Value>;
  constructor(items: Iterator<Value>) {
    this.items = items;
  }
  [Symbol.iterator](): Iterator<Value> {
    // Leaving a loop early does not end the generator.
    return { next: () => this.items.next() };
  }
}

export interface Args {
  readonly positional: readonly Value[];
  readonly keywords: ReadonlyMap<string, Value>;
}

/** A function or method. */
export class Callable {
  readonly name: string;
  readonly call: (args: Args) => Value;
  constructor(name: string, call: (args: Args) => Value) {
    this.name = name;
    this.call = call;
  }
}

/** An object of jinja2's with attributes: `loop`, a macro, `cycler(…)`. */
export abstract class Native {
  /** The name of its class in Python. */
  abstract readonly typeName: string;
  abstract attribute(name: string): Value | undefined;
  /** How it prints; undefined where Python prints an address. */
  repr(): string | undefined {
    return undefined;
  }
  call(_args: Args): Value {
    throw typeFault(`'${this.typeName}' object is not callable`);
  }
}

export class Namespace {
  readonly attributes = new Map<string, Value>();
}

export type Value =
  | null
  | boolean
  | number
  | bigint
  | Float
  | string
  | readonly Value[]
  | Tuple
  | Dict
  | DictView
  | Range
  | Undefined
  | Markup
  | Generator
  | Callable
  | Native
  | Namespace;

/** A value, or another where there is none: unlike with `??`, None is a value. */
export const orElse = (value: Value | undefined, otherwise: () => Value): Value =>
  value === undefined ? otherwise() : value;

/** `Array.isArray` for values. */
export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);
export const isInteger = (value: Value): value is number | bigint =>
  typeof value === "number" || typeof value === "bigint";

/** The name of a value's class in Python. */
export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "number":
    case "bigint":
      return "int";
    case "string":
      return "str";
  }
  if (isList(value)) return "list";
  if (value instanceof Float) return "float";
  if (value instanceof Tuple) return "tuple";
  if (value instanceof Dict) return "dict";
  if (value instanceof DictView) return `dict_${value.part}`;
  if (value instanceof Range) return "range";
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Markup) return "Markup";
  if (value instanceof Generator) return "generator";
  if (value instanceof Namespace) return "TemplateNamespace";
  return value instanceof Native ? value.typeName : "builtin_function_or_method";
}

/** Tells tuples from texts among the keys of a map. */
const TUPLE = "\ud800tuple ";

/** What equal keys have in common, as keys of a JavaScript map. */
function hash(key: Value): unknown {
  if (typeof key === "string" || typeof key === "number" || typeof key === "bigint" || key === null) return key;
  if (typeof key === "boolean") return key ? 1 : 0;
  if (key instanceof Float) {
    const { value } = key;
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(value) : value === 0 ? 0 : value;
  }
  if (key instanceof Undefined) return Undefined;
  if (key instanceof Markup) return key.text;
  if (key instanceof Tuple) {
    const parts = key.items.map((item) => {
      const part = hash(item);
      if (typeof part === "object" || typeof part === "function") throw unsupported("such a tuple as a key");
      return `${typeof part} ${JSON.stringify(typeof part === "bigint" ? String(part) : part)}`;
    });
    return TUPLE + parts.join(",");
  }
  if (isList(key) || key instanceof Dict) throw typeFault(`unhashable type: '${typeName(key)}'`);
  if (key instanceof Range || key instanceof DictView) throw unsupported(`a ${typeName(key)} as a key`);
  return key;
}

/** A dict: keys in the order in which they were first set. */
export class Dict {
  private readonly entriesByHash = new Map<unknown, { readonly key: Value; value: Value }>();

  static from(entries: Iterable<readonly [Value, Value]>): Dict {
    const dict = new Dict();
    for (const [key, value] of entries) dict.set(key, value);
    return dict;
  }

  get size(): number {
    return this.entriesByHash.size;
  }
  has(key: Value): boolean {
    return this.entriesByHash.has(hash(key));
  }
  get(key: Value): Value | undefined {
    return this.entriesByHash.get(hash(key))?.value;
  }
  /** Only while the dict is being made. */
  set(key: Value, value: Value): void {
    const hashed = hash(key);
    const entry = this.entriesByHash.get(hashed);
    if (entry) entry.value = value;
    else this.entriesByHash.set(hashed, { key, value });
  }
  *keys(): IterableIterator<Value> {
    for (const { key } of this.entriesByHash.values()) yield key;
  }
  *values(): IterableIterator<Value> {
    for (const { value } of this.entriesByHash.values()) yield value;
  }
  *entries(): IterableIterator<[Value, Value]> {
    for (const { key, value } of this.entriesByHash.values()) yield [key, value];
  }
}

/** `dict.keys()`, `dict.values()` or `dict.items()` */
export class DictView implements Iterable<Value> {
  readonly dict: Dict;
  readonly part: "keys" | "values" | "items";
  constructor(dict: Dict, part: "keys" | "values" | "items") {
    this.dict = dict;
    this.part = part;
  }
  *[Symbol.iterator](): Iterator<Value> {
    if (this.part === "keys") yield* this.dict.keys();
    else if (this.part === "values") yield* this.dict.values();
    else for (const entry of this.dict.entries()) yield new Tuple(entry);
  }
}

/** A set of hashable values, for filters such as `unique`. */
export class ValueSet {
  private readonly hashes = new Set<unknown>();
  /** Adds a value; whether it was new. */
  add(value: Value): boolean {
    const hashed = hash(value);
    if (this.hashes.has(hashed)) return false;
    this.hashes.add(hashed);
    return true;
  }
}
