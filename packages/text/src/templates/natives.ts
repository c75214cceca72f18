// Objects that jinja2 itself gives to templates.

import { entriesOf } from "./attributes.ts";
import type { Budget } from "./budget.ts";
import { Fault, typeFault, unsupported, valueFault } from "./faults.ts";
import { equals, indexArgument, iterate, lengthOfValue } from "./operators.ts";
import { strftime } from "./strftime.ts";
import { textOf } from "./text_of.ts";
import { type Args, Callable, Dict, Namespace, Native, Range, Tuple, Undefined, type Value } from "./values.ts";

/** The longest `range` that jinja2's sandbox allows. */
const MAX_RANGE = 100_000;

/** `loop` within a `for`. */
export class LoopContext extends Native {
  readonly typeName = "LoopContext";
  private index0 = -1;
  private readonly budget: Budget;
  private readonly source: Value;
  private items: Iterator<Value>;
  private readonly depth0: number;
  private readonly recurse: ((items: Value, depth: number) => Value) | undefined;
  private after: IteratorResult<Value> | undefined;
  private current: Value | undefined;
  private before: Value | undefined;
  private changedTo: Value | undefined;
  private known: number | undefined;

  constructor(
    budget: Budget,
    source: Value,
    items: Iterator<Value>,
    depth0: number,
    recurse: ((items: Value, depth: number) => Value) | undefined,
  ) {
    super();
    this.budget = budget;
    this.source = source;
    this.items = items;
    this.depth0 = depth0;
    this.recurse = recurse;
  }

  /** Goes on to the next item; undefined at the end. */
  next(): Value | undefined {
    const next = this.peek();
    this.after = undefined;
    if (next.done) return undefined;
    this.index0++;
    this.before = this.current;
    this.current = next.value;
    return next.value;
  }

  private peek(): IteratorResult<Value> {
    this.after ??= this.items.next();
    return this.after;
  }

  private get length(): number {
    if (this.known !== undefined) return this.known;
    this.known = lengthOfValue(this.source);
    if (this.known !== undefined) return this.known;
    const rest: Value[] = [];
    for (let next = this.items.next(); !next.done; next = this.items.next()) {
      this.budget.makeItems(1);
      rest.push(next.value);
    }
    this.items = rest[Symbol.iterator]();
    const peeked = this.after && !this.after.done ? 1 : 0;
    this.known = rest.length + this.index0 + 1 + peeked;
    return this.known;
  }

  override repr(): string {
    return `<LoopContext ${this.index0 + 1}/${this.length}>`;
  }

  attribute(name: string): Value | undefined {
    switch (name) {
      case "index":
        return this.index0 + 1;
      case "index0":
        return this.index0;
      case "revindex":
        return this.length - this.index0;
      case "revindex0":
        return this.length - this.index0 - 1;
      case "first":
        return this.index0 === 0;
      case "last":
        return this.peek().done === true;
      case "length":
        return this.length;
      case "depth":
        return this.depth0 + 1;
      case "depth0":
        return this.depth0;
      case "previtem":
        return this.index0 === 0 || this.before === undefined
          ? new Undefined("there is no previous item")
          : this.before;
      case "nextitem": {
        const next = this.peek();
        return next.done ? new Undefined("there is no next item") : next.value;
      }
      case "cycle":
        return new Callable(name, ({ positional }) => {
          if (positional.length === 0) throw typeFault("no items for cycling given");
          return positional[this.index0 % positional.length] as Value;
        });
      case "changed":
        return new Callable(name, ({ positional }) => {
          const value = new Tuple(positional);
          if (this.changedTo !== undefined && equals(this.budget, this.changedTo, value)) return false;
          this.changedTo = value;
          return true;
        });
      default:
        return undefined;
    }
  }

  override call({ positional, keywords }: Args): Value {
    if (!this.recurse) throw typeFault("The loop must have the 'recursive' marker to be called recursively.");
    if (positional.length !== 1 || keywords.size > 0) throw typeFault("loop() takes one argument");
    return this.recurse(positional[0] as Value, this.depth0 + 1);
  }
}

class Cycler extends Native {
  readonly typeName = "Cycler";
  private readonly items: readonly Value[];
  private at = 0;
  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw valueFault("at least one item has to be provided");
    this.items = items;
  }
  attribute(name: string): Value | undefined {
    const current = this.items[this.at] as Value;
    switch (name) {
      case "current":
        return current;
      case "pos":
        return this.at;
      case "items":
        return new Tuple(this.items);
      case "next":
        return new Callable(name, () => {
          const found = this.items[this.at] as Value;
          this.at = (this.at + 1) % this.items.length;
          return found;
        });
      case "reset":
        return new Callable(name, () => {
          this.at = 0;
          return null;
        });
      default:
        return undefined;
    }
  }
}

class Joiner extends Native {
  readonly typeName = "Joiner";
  private readonly separator: Value;
  private used = false;
  constructor(separator: Value) {
    super();
    this.separator = separator;
  }
  attribute(name: string): Value | undefined {
    return name === "sep" ? this.separator : name === "used" ? this.used : undefined;
  }
  override call(): Value {
    const result = this.used ? this.separator : "";
    this.used = true;
    return result;
  }
}

function makeDict(budget: Budget, { positional, keywords }: Args): Dict {
  if (positional.length > 1) throw typeFault(`dict expected at most 1 argument, got ${positional.length}`);
  const dict = new Dict();
  for (const [key, value] of positional.length > 0 ? entriesOf(budget, positional[0] as Value) : []) {
    budget.makeItems(2);
    dict.set(key, value);
  }
  for (const [key, value] of keywords) dict.set(key, value);
  return dict;
}

/** `dict`, which makes dicts. */
class DictMaker extends Native {
  readonly typeName = "TemplateDict";
  private readonly budget: Budget;
  constructor(budget: Budget) {
    super();
    this.budget = budget;
  }
  attribute(name: string): Value | undefined {
    if (name !== "fromkeys") return undefined;
    return new Callable(name, ({ positional, keywords }) => {
      const [keys, value = null] = positional;
      if (keys === undefined || positional.length > 2 || keywords.size > 0)
        throw typeFault("fromkeys expected 1 or 2 arguments");
      const dict = new Dict();
      const items = iterate(this.budget, keys);
      for (let next = items.next(); !next.done; next = items.next()) {
        this.budget.makeItems(2);
        dict.set(next.value, value);
      }
      return dict;
    });
  }
  override call(given: Args): Value {
    return makeDict(this.budget, given);
  }
}

/** A name of an attribute of a namespace. */
export function checkAttribute(name: string): void {
  if (name.startsWith("_"))
    throw new Fault(
      "security",
      `Chat templates cannot store underscore-prefixed attributes on a namespace, but got '${name}'. Please rename the attribute.`,
    );
}

function makeNamespace(budget: Budget, given: Args): Namespace {
  const namespace = new Namespace();
  for (const [key, value] of makeDict(budget, given).entries()) {
    if (typeof key !== "string") throw unsupported("a namespace with names that are no texts");
    checkAttribute(key);
    namespace.attributes.set(key, value);
  }
  return namespace;
}

function makeRange({ positional, keywords }: Args): Range {
  if (keywords.size > 0 || positional.length < 1 || positional.length > 3)
    throw typeFault(`range expected 1 to 3 arguments, got ${positional.length}`);
  const [first, second, third = 1] = positional.map(indexArgument) as [number, number?, number?];
  if (third === 0) throw valueFault("range() arg 3 must not be zero");
  const range = second === undefined ? new Range(0, first, 1) : new Range(first, second, third);
  if (!(range.length <= MAX_RANGE))
    throw new Fault("limit", `makes a range of more than ${MAX_RANGE} numbers, which jinja2's sandbox refuses too`);
  return range;
}

/** The variables that every template has. */
export function globalsOf(budget: Budget, now: () => Date): ReadonlyMap<string, Value> {
  const make = (name: string, call: (given: Args) => Value): [string, Value] => [name, new Callable(name, call)];
  return new Map<string, Value>([
    ["dict", new DictMaker(budget)],
    make("range", makeRange),
    make("namespace", (given) => makeNamespace(budget, given)),
    make("cycler", ({ positional, keywords }) => {
      if (keywords.size > 0) throw typeFault("cycler takes no keyword arguments");
      return new Cycler(positional);
    }),
    make("joiner", ({ positional, keywords }) => new Joiner(positional[0] ?? keywords.get("sep") ?? ", ")),
    make("lipsum", () => {
      throw unsupported("`lipsum`");
    }),
    make("raise_exception", ({ positional, keywords }) => {
      const [message = keywords.get("message")] = positional;
      if (message === undefined) throw typeFault("raise_exception() missing 1 required positional argument: 'message'");
      throw new Fault("raised", textOf(budget, message));
    }),
    make("strftime_now", ({ positional, keywords }) => {
      const format = positional[0] ?? keywords.get("format");
      if (typeof format !== "string") throw typeFault("strftime() argument 1 must be str");
      return budget.made(strftime(now(), format));
    }),
  ]);
}
