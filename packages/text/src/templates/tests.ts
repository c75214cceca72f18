// The tests of jinja2: `value is name(…)`.
import { typeFault, unsupported } from "./faults.ts";
import type { Comparison } from "./nodes.ts";
import { numberOf } from "./numbers.ts";
import { binary, compare, contains, equals, iterable } from "./operators.ts";
import type { Runtime, Test } from "./runtime.ts";
import { hasCase } from "./text_methods.ts";
import { textOf } from "./text_of.ts";
import {
  type Args,
  Callable,
  Dict,
  Float,
  isInteger,
  isList,
  Markup,
  Native,
  Range,
  Tuple,
  Undefined,
  type Value,
  ValueSet,
} from "./values.ts";

function argumentsOf(name: string, { positional, keywords }: Args, count: number): readonly Value[] {
  if (keywords.size > 0) throw unsupported(`a keyword argument of the test \`${name}\``);
  if (positional.length !== count)
    throw typeFault(`the test \`${name}\` takes ${count} arguments, got ${positional.length}`);
  return positional;
}

const plain =
  (name: string, test: (value: Value, runtime: Runtime) => boolean): Test =>
  (runtime, value, args) => {
    argumentsOf(name, args, 0);
    return test(value, runtime);
  };

const comparing =
  (name: string, operator: Comparison): Test =>
  (runtime, value, args) =>
    compare(runtime.budget, operator, value, argumentsOf(name, args, 1)[0] as Value);

function remainder(runtime: Runtime, value: Value, by: Value, wanted: number): boolean {
  return equals(runtime.budget, binary(runtime.budget, "%", value, by), wanted);
}

/** `a is b` of Python for values of which it says the same everywhere. */
function isSame(a: Value, b: Value): boolean {
  for (const value of [a, b])
    if (isInteger(value) || typeof value === "string" || value instanceof Float)
      throw unsupported("`sameas` with numbers or texts, which differs between versions of Python,");
  return a === b;
}

const isSequence = (value: Value) =>
  typeof value === "string" || isList(value) || [Tuple, Dict, Range, Markup].some((type) => value instanceof type);

const PAIRS: readonly (readonly [string, Comparison])[] = [
  ["==", "=="],
  ["eq", "=="],
  ["equalto", "=="],
  ["!=", "!="],
  ["ne", "!="],
  [">", ">"],
  ["gt", ">"],
  ["greaterthan", ">"],
  ["ge", ">="],
  [">=", ">="],
  ["<", "<"],
  ["lt", "<"],
  ["lessthan", "<"],
  ["<=", "<="],
  ["le", "<="],
];

/** `names`: the filters there are, for the test of that name. */
export const testsBeside = (filters: { has(name: string): boolean }): ReadonlyMap<string, Test> => {
  const tests: Map<string, Test> = new Map<string, Test>([
    ...PAIRS.map(([name, operator]) => [name, comparing(name, operator)] as const),
    ["odd", plain("odd", (value, runtime) => remainder(runtime, value, 2, 1))],
    ["even", plain("even", (value, runtime) => remainder(runtime, value, 2, 0))],
    [
      "divisibleby",
      (runtime, value, args) => remainder(runtime, value, argumentsOf("divisibleby", args, 1)[0] as Value, 0),
    ],
    ["defined", plain("defined", (value) => !(value instanceof Undefined))],
    ["undefined", plain("undefined", (value) => value instanceof Undefined)],
    ["filter", plain("filter", (value) => isNameAmong(filters, value))],
    ["test", plain("test", (value) => isNameAmong(tests, value))],
    ["none", plain("none", (value) => value === null)],
    ["boolean", plain("boolean", (value) => typeof value === "boolean")],
    ["false", plain("false", (value) => value === false)],
    ["true", plain("true", (value) => value === true)],
    ["integer", plain("integer", isInteger)],
    ["float", plain("float", (value) => value instanceof Float)],
    ["lower", plain("lower", (value, { budget }) => hasCase(textOf(budget, value), false))],
    ["upper", plain("upper", (value, { budget }) => hasCase(textOf(budget, value), true))],
    ["string", plain("string", (value) => typeof value === "string" || value instanceof Markup)],
    ["mapping", plain("mapping", (value) => value instanceof Dict)],
    ["number", plain("number", (value) => numberOf(value) !== undefined)],
    ["sequence", plain("sequence", (value) => (value instanceof Undefined ? failing(value) : isSequence(value)))],
    ["sameas", (_, value, args) => isSame(value, argumentsOf("sameas", args, 1)[0] as Value)],
    [
      "iterable",
      plain("iterable", (value, { budget }) =>
        value instanceof Markup || isLoop(value)
          ? true
          : typeof value === "string" || iterable(budget, value) !== undefined,
      ),
    ],
    ["escaped", plain("escaped", (value) => value instanceof Markup)],
    ["callable", plain("callable", (value) => isCallable(value))],
    ["in", (runtime, value, args) => contains(runtime.budget, argumentsOf("in", args, 1)[0] as Value, value)],
  ]);
  return tests;
};

/** Whether a text is one of the names. Python looks for it in a dict, where values that cannot be keys fail. */
function isNameAmong(names: { has(name: string): boolean }, value: Value): boolean {
  new ValueSet().add(value);
  return typeof value === "string" && names.has(value);
}

/** An undefined value has a length, and looking for its `__getitem__` finds a method that fails when called. */
const failing = (_: Undefined) => true;
const isLoop = (value: Value) => value instanceof Native && value.typeName === "LoopContext";

function isCallable(value: Value): boolean {
  if (value instanceof Callable || value instanceof Undefined) return true;
  if (value instanceof Native) return ["Macro", "LoopContext", "Joiner", "TemplateDict"].includes(value.typeName);
  return false;
}
