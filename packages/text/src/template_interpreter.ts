import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { MlxtsError } from "@mlxts/common/errors";

export type Value = ReturnType<Interpreter["evaluate"]>;
type Statement = NonNullable<Parameters<Interpreter["evaluate"]>[0]>;
/** A node of a parsed template, with the fields that are read here. */
type Node = Statement & {
  object?: Node;
  property?: Node;
  iterable?: Node;
  lhs?: Node;
  callee?: Node;
  computed?: boolean;
  value?: unknown;
};
type Scope = Parameters<Interpreter["evaluate"]>[1];
type Call = (args: Value[], scope: Scope) => Value;

/** Methods of the library's interpreter that are overridden or called here. */
interface OpenInterpreter {
  evaluate(node: Statement | undefined, scope: Scope): Value;
  run(program: Statement): Value;
  applyFilter(operand: Value, filter: Node, scope: Scope): Value;
  evaluateBlock(statements: Node[], scope: Scope): Value;
  evaluateArguments(args: Node[], scope: Scope): [Value[], Map<string, Value>];
}
const Base = Interpreter as unknown as new (scope: Scope) => OpenInterpreter;

/** The most numbers that `range` gives, as in the sandbox of Hugging Face transformers. */
const MAX_RANGE = 100_000;
/** An item of a list takes the memory of about so many characters. */
const ITEM = 32;

/** The size of a value written out as text. */
interface Size {
  characters: number;
  /** Texts, numbers, lists and objects in it, itself included. */
  values: number;
  /** Lists and objects within each other. */
  depth: number;
}

function limitError(what: string): MlxtsError {
  return new MlxtsError("LimitExceeded", what, { reason: what });
}

/** The error of a template that calls `raise_exception` to refuse the messages. */
export class TemplateRefusal extends Error {}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0) throw new Error("range() step must not be zero");
  const items: number[] = [];
  for (let i = from; step > 0 ? i < to : i > to; i += step)
    if (items.push(i) > MAX_RANGE) throw limitError(`range() gives more than ${MAX_RANGE} numbers`);
  return items;
}

function globals(): Environment {
  const scope = new Environment();
  for (const [name, value] of Object.entries({ true: true, True: true, false: false, False: false }))
    scope.set(name, value);
  scope.set("none", null);
  scope.set("None", null);
  scope.set("range", range);
  scope.set("strftime_now", (format: string) => new Template("{{ strftime_now(format) }}").render({ format }));
  scope.set("raise_exception", (message: unknown) => {
    throw new TemplateRefusal(String(message));
  });
  return scope;
}

const isText = (value: Value | undefined): value is Value & { value: string } => value?.type === "StringValue";
const items = (value: Value): readonly Value[] | undefined =>
  Array.isArray(value.value) ? (value.value as Value[]) : undefined;
const entries = (value: Value): ReadonlyMap<string, Value> | undefined =>
  value.value instanceof Map ? (value.value as Map<string, Value>) : undefined;
const numberOf = (value: Value | undefined, fallback: number) =>
  typeof value?.value === "number" ? value.value : fallback;
const lengthOf = (value: Value | undefined) => (isText(value) ? value.value.length : 0);

/** How often `part` occurs in `text`. */
function occurrences(text: string, part: string): number {
  if (part === "") return text.length + 1;
  let found = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) found++;
  return found;
}

/** An upper bound of the words in `text`. */
function words(text: string): number {
  let found = 1;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code <= 0x20 || code >= 0x80) found++;
  }
  return found;
}

/**
 * Runs a template while the size of each value, and of all values together, stays below limits. Operations that can make
 * a large value from small ones are checked before they run: `range`, `replace`, `split`, `join`, `indent`, `tojson`,
 * slices, loops, and lists in lists.
 */
export class LimitedInterpreter extends Base {
  /** The most characters of one value. */
  private readonly largest: number;
  /** Characters that may still be made, of all values together. */
  private left: number;
  private readonly sizes = new WeakMap<Value, Size>();
  /** Texts whose `replace` and `split` are checked. */
  private readonly guarded = new WeakSet<Value>();
  /** Blocks whose statements are in `printed`. */
  private readonly blocks = new WeakSet<Node[]>();
  /** Statements of blocks: their values are written to the output. */
  private readonly printed = new WeakSet<Node>();
  /** Nodes that wait for the value of their operand, innermost last. */
  private readonly waiting: { node: Node; operand: Node }[] = [];

  constructor(variables: Record<string, unknown>, maxCharacters: number) {
    const scope = globals();
    super(scope);
    this.largest = Number.POSITIVE_INFINITY;
    this.left = Number.POSITIVE_INFINITY;
    let given = 0;
    for (const [name, value] of Object.entries(variables)) given += this.sizeOf(scope.set(name, value)).characters;
    this.largest = maxCharacters + 4 * given;
    this.left = 4 * maxCharacters + 64 * given;
  }

  override evaluate(statement: Statement | undefined, scope: Scope): Value {
    const node = statement as Node | undefined;
    if (!node) return super.evaluate(node, scope);
    if ((node.type as string) === "Constant") return node.value as Value;
    this.charge(1);
    const operand = node.type === "MemberExpression" ? node.object : node.type === "For" ? node.iterable : undefined;
    if (!operand) return this.checked(node, super.evaluate(node, scope));
    this.waiting.push({ node, operand: (operand.type === "SelectExpression" && operand.lhs) || operand });
    try {
      return this.checked(node, super.evaluate(node, scope));
    } finally {
      this.waiting.pop();
    }
  }

  override evaluateBlock(statements: Node[], scope: Scope): Value {
    if (!this.blocks.has(statements)) {
      this.blocks.add(statements);
      for (const statement of statements) this.printed.add(statement);
    }
    return super.evaluateBlock(statements, scope);
  }

  /** Checks the value of a node, and prepares the node that waits for it. */
  private checked(node: Node, value: Value): Value {
    // The library gives undefined for the first item of an empty list.
    if (value === undefined) return value;
    const printed = this.printed.has(node);
    // Names, literals and members give values that exist already.
    const made = printed || !["Identifier", "StringLiteral", "MemberExpression"].includes(node.type);
    if (isText(value)) {
      this.assertSize(value.value.length);
      if (made) this.charge(value.value.length);
    } else if (items(value) || entries(value)) {
      const { characters } = this.sizeOf(value);
      this.assertSize(characters);
      if (printed) this.charge(characters);
      if (made) this.charge(ITEM * (items(value)?.length ?? entries(value)?.size ?? 0));
    }
    const top = this.waiting.at(-1);
    if (top?.operand === node) this.prepare(top.node, value);
    return value;
  }

  /** Before `node` uses the value of its operand. */
  private prepare(node: Node, value: Value): void {
    if (node.type === "For") this.charge(ITEM * (items(value)?.length ?? entries(value)?.size ?? 0));
    else if (isText(value)) {
      const property = node.property as Node;
      if (property.type === "SliceExpression") this.charge(4 * value.value.length);
      else if (node.computed || ["replace", "split"].includes(String(property.value))) this.guard(value);
    }
  }

  /** Makes `replace` and `split` of a text check the size of their result before they run. */
  private guard(text: Value & { value: string }): void {
    if (this.guarded.has(text)) return;
    this.guarded.add(text);
    const before = (name: string, check: (args: Value[]) => void) => {
      const method = text.builtins.get(name) as unknown as { value: Call };
      const call = method.value;
      method.value = (args, scope) => {
        check(args);
        return call(args, scope);
      };
    };
    before("replace", ([from, to]) => {
      if (!isText(from) || !isText(to)) return;
      const found = occurrences(text.value, from.value);
      this.charge(ITEM * found);
      this.assertSize(text.value.length + found * to.value.length);
    });
    before("split", ([separator]) => {
      this.charge(ITEM * (isText(separator) ? occurrences(text.value, separator.value) + 1 : words(text.value)));
    });
  }

  override applyFilter(operand: Value, filter: Node, scope: Scope): Value {
    const called = filter.type === "CallExpression";
    const name = String(called ? filter.callee?.value : filter.value);
    if (operand === undefined) throw new Error(`Cannot apply filter "${name}" to nothing`);
    if (isText(operand) && name === "replace") this.guard(operand);
    if (!["indent", "join", "tojson"].includes(name)) return super.applyFilter(operand, filter, scope);
    const { args } = filter as unknown as { args?: Node[] };
    const [positional, named] = this.evaluateArguments(called ? (args ?? []) : [], scope);
    const size = this.sizeOf(operand);
    if (isText(operand) && name === "indent") {
      const width = numberOf(positional[0] ?? named.get("width"), 4);
      this.assertSize(operand.value.length + (occurrences(operand.value, "\n") + 1) * Math.max(0, width));
    } else if (name === "join") {
      const parts = isText(operand) ? operand.value.length : (items(operand)?.length ?? 0);
      this.charge(ITEM * parts);
      this.assertSize(size.characters + parts * lengthOf(positional[0] ?? named.get("separator")));
    } else if (name === "tojson") {
      const separators = items(named.get("separators") ?? operand) ?? [];
      const between = named.has("separators") ? separators.reduce((sum, text) => sum + lengthOf(text), 0) : 4;
      const indent = Math.max(0, numberOf(named.get("indent"), 0));
      this.charge(ITEM * size.values);
      this.assertSize(size.characters + size.values * (between + (size.depth + 1) * indent));
    }
    if (!called) return super.applyFilter(operand, filter, scope);
    // The arguments are passed as values: evaluating them again could have effects.
    const constant = (value: Value) => ({ type: "Constant", value });
    const known = [
      ...positional.map(constant),
      ...[...named].map(([key, value]) => ({
        type: "KeywordArgumentExpression",
        key: { type: "Identifier", value: key },
        value: constant(value),
      })),
    ];
    return super.applyFilter(operand, { ...filter, type: "CallExpression", args: known } as unknown as Node, scope);
  }

  /** Counts characters that are made. */
  private charge(characters: number): void {
    this.left -= characters;
    if (this.left < 0) throw limitError("makes more text and lists than a template may");
  }

  /** Checks the size of one value. */
  private assertSize(characters: number): void {
    if (!(characters <= this.largest)) throw limitError(`makes a text or list of more than ${this.largest} characters`);
  }

  /** The size of a value written out as text; a list that is twice in another one counts twice. */
  private sizeOf(value: Value): Size {
    const known = this.sizes.get(value);
    if (known) return known;
    const list = items(value);
    const map = entries(value);
    if (!list && !map) return { characters: isText(value) ? value.value.length : 24, values: 1, depth: 0 };
    this.charge(1);
    const size = { characters: 2, values: 1, depth: 0 };
    for (const item of list ?? (map as ReadonlyMap<string, Value>).values()) {
      const { characters, values, depth } = this.sizeOf(item);
      size.characters += characters + 2;
      size.values += values;
      size.depth = Math.max(size.depth, depth + 1);
      this.assertSize(size.characters);
    }
    for (const key of map?.keys() ?? []) size.characters += key.length + 2;
    this.assertSize(size.characters);
    // Only namespaces can change: other values keep their size, unless a namespace is in them.
    if (this.isFixed(value)) this.sizes.set(value, size);
    return size;
  }

  /** Whether the size of a value cannot change. */
  private isFixed(value: Value): boolean {
    if (value.type === "NamespaceValue") return false;
    for (const item of items(value) ?? entries(value)?.values() ?? [])
      if ((items(item) || entries(item)) && !this.sizes.has(item)) return false;
    return true;
  }
}
