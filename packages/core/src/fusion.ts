// Rules by which calls of ops become one call of another op. A rule is data that stands beside the op that results.
import { wrongKind, wrongValue } from "./errors.ts";
import { checkOptionNames, namesOf, type OptionNames } from "./options.ts";
import { isArray } from "./shape.ts";

type Names = Readonly<Record<string, unknown>>;
/** An op, as far as a rule is concerned. */
type AnyOp = ((encoder: never, inputs: never, options: never) => unknown) & {
  readonly op: { readonly name: string; readonly inputs: Names; readonly outputs: Names; readonly params: Names };
};

/**
 * Calls that one op can do with the same bits. They need not stand side by side: core checks that no other dispatch comes
 * between them or depends on what is left out.
 */
export interface FusionRule {
  /** The op of each call, by a name for the call, in order; the op that results stands in the place of the last one. */
  calls: Readonly<Record<string, string>>;
  /**
   * Inputs that are outputs of other calls of the rule: `{ "product.a": "norm.out" }`. They are exactly the same view. An output that
   * is linked and is no output of the op that results is left out, if nobody else can see it.
   */
  links: Readonly<Record<string, string>>;
  /** The op that results. */
  into: AnyOp;
  /** Where the op that results has its tensors from: `{ x: "norm.x", out: "product.out" }`; records are one name. */
  tensors: Readonly<Record<string, string>>;
  /** Where it has its options from: `{ eps: "norm.eps" }`. */
  options?: Readonly<Record<string, string>>;
  /** Values of options for which the rule holds: `{ "norm.rounding": ["once"] }`. */
  when?: Readonly<Record<string, readonly (string | number | boolean)[]>>;
}

/** A name of a call and of one of its tensors or options. */
export interface Place {
  readonly call: string;
  readonly name: string;
}

/** A rule, checked and frozen. */
export interface Fusion {
  /** In order; the last one first to be found. */
  readonly calls: readonly (readonly [call: string, op: string])[];
  readonly links: readonly { readonly input: Place; readonly output: Place }[];
  readonly into: AnyOp;
  readonly tensors: readonly (readonly [name: string, from: Place])[];
  readonly options: readonly (readonly [name: string, from: Place])[];
  readonly when: readonly (readonly [from: Place, values: readonly unknown[]])[];
}

const OP = "defineFusion";
const RULE: OptionNames<FusionRule> = {
  calls: true,
  links: true,
  into: true,
  tensors: true,
  options: true,
  when: true,
};

const fusions = new WeakSet<object>();

export const isFusion = (value: unknown): value is Fusion =>
  value !== null && typeof value === "object" && fusions.has(value);

function readPlace(argument: string, value: unknown, calls: ReadonlyMap<string, string>): Place {
  const [call, name, ...rest] = typeof value === "string" ? value.split(".") : [];
  if (call === undefined || name === undefined || rest.length > 0 || !calls.has(call))
    throw wrongValue(OP, argument, `be call.name, with a call of ${[...calls.keys()].join(", ")}`, value);
  return Object.freeze({ call, name });
}

function readPairs(argument: string, value: unknown): [string, unknown][] {
  return namesOf(OP, argument, value).map((name) => [name, (value as Record<string, unknown>)[name]]);
}

/** The links in an order in which each one's consumer is known: from the last call to the first. */
function orderLinks(links: Fusion["links"], calls: readonly string[]): Fusion["links"] {
  const ordered: Fusion["links"][number][] = [];
  const found = new Set(calls.slice(-1));
  while (found.size < calls.length) {
    const link = links.find(({ input, output }) => found.has(input.call) && !found.has(output.call));
    if (!link) throw wrongValue(OP, "links", "lead from the last call to every other one", calls);
    ordered.push(link);
    found.add(link.output.call);
  }
  if (ordered.length < links.length) throw wrongValue(OP, "links", "be one for each call but the last", links.length);
  return ordered;
}

/** A rule for `device.encoder({ optimize: { fuse: [...] } })`. It is read once, and changing it changes nothing. */
export function defineFusion(rule: FusionRule): Fusion {
  checkOptionNames<FusionRule>(OP, rule, RULE, "rule");
  const { into, options = {}, when = {} } = rule;
  if (typeof into !== "function" || !namesOf(OP, "into", into.op).includes("inputs"))
    throw wrongKind(OP, "into", "be an op", into);
  const calls = readPairs("calls", rule.calls);
  for (const [call, op] of calls) if (typeof op !== "string") throw wrongKind(OP, call, "name an op", op);
  if (calls.length < 2) throw wrongValue(OP, "calls", "be at least two", calls.length);
  const byName = new Map(calls as [string, string][]);
  const links = readPairs("links", rule.links).map(([input, output]) =>
    Object.freeze({ input: readPlace("links", input, byName), output: readPlace("links", output, byName) }),
  );
  const named = (argument: string, pairs: [string, unknown][], known: readonly string[]) =>
    pairs.map(([name, from]) => {
      if (!known.includes(name)) throw wrongValue(OP, argument, `name those of ${into.op.name}`, name);
      return Object.freeze([name, readPlace(argument, from, byName)] as const);
    });
  const values = readPairs("when", when).map(([from, list]) => {
    if (!isArray(list)) throw wrongKind(OP, "when", "be arrays of values", list);
    return Object.freeze([readPlace("when", from, byName), Object.freeze([...list])] as const);
  });
  const fusion: Fusion = Object.freeze({
    calls: Object.freeze(calls as [string, string][]),
    links: Object.freeze(orderLinks(links, [...byName.keys()])),
    into,
    tensors: Object.freeze(
      named("tensors", readPairs("tensors", rule.tensors), Object.keys({ ...into.op.inputs, ...into.op.outputs })),
    ),
    options: Object.freeze(named("options", readPairs("options", options), Object.keys(into.op.params))),
    when: Object.freeze(values),
  });
  fusions.add(fusion);
  return fusion;
}
