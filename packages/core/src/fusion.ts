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
 * Calls that one op can do with the same bits. They need not stand side by side: the op that results stands in the place of the
 * last of them, or of an earlier one, wherever the others can move to. Ops are known by their names and by the names of their
 * tensors and options that the rule has.
 *
 * The rule promises equal bits for calls that it describes. Core refuses, whatever a rule says:
 * - a call with an input that is neither linked nor carried over by `tensors` (nor the `same` as one that is);
 * - a call with an option that has not its default and is neither carried over by `options` nor named by `when` (nor the
 *   `same` as one that is);
 * - an output that is left out and that somebody else can see, and one that its call writes only in part;
 * - calls that cannot move to one place, since others between them use their memory;
 * - an op that refuses its arguments, and one that takes as many dispatches as the calls.
 */
export interface FusionRule {
  /**
   * The op of each call, by a name for the call. The last one is found first, and `links` and `same` lead from it to all others;
   * else the order means nothing.
   */
  calls: Readonly<Record<string, string>>;
  /**
   * Inputs that are outputs of other calls of the rule: `{ "product.a": "norm.out" }`. They are exactly the same view. An output that
   * is linked and is no output of the op that results is left out, if nobody else can see it.
   */
  links?: Readonly<Record<string, string>>;
  /**
   * Inputs that are the same tensor, and options that have the same value: `{ "up.x": "gate.x", "up.outDtype": "gate.outDtype" }`.
   * Tensors are exactly the same view, which nobody writes between the calls. A call to which no link leads is found by them.
   */
  same?: Readonly<Record<string, string>>;
  /** The op that results. */
  into: AnyOp;
  /** Where the op that results has its tensors from: `{ x: "norm.x", out: "product.out" }`; records are one name. */
  tensors: Readonly<Record<string, string>>;
  /**
   * Tensors of the op that results that it gets in the shape of another tensor: `{ a: "rule.g" }`. With `shapes`, tensors that
   * are linked or the same may have other shapes, with the same elements.
   */
  shapes?: Readonly<Record<string, string>>;
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

/** How a call is found from one that is known: it made an input of that, or has an input that is the same. */
export interface Step {
  readonly by: "link" | "same";
  /** Pairs of a place in a known call and one in the call that is sought; one of a link. */
  readonly pairs: readonly (readonly [known: Place, sought: Place])[];
}

/** A rule, checked and frozen. */
export interface Fusion {
  readonly calls: readonly (readonly [call: string, op: string])[];
  readonly links: readonly { readonly input: Place; readonly output: Place }[];
  readonly same: readonly (readonly [Place, Place])[];
  /** From the last call to all others. */
  readonly steps: readonly Step[];
  /** The names that the rule has of each call. */
  readonly names: Readonly<Record<string, readonly string[]>>;
  /** Inputs and options, as call.name, that are linked, carried over, or named by `when`, and those that are the same. */
  readonly accounted: readonly string[];
  readonly into: AnyOp;
  readonly tensors: readonly (readonly [name: string, from: Place])[];
  readonly shapes: readonly (readonly [name: string, like: Place])[];
  readonly options: readonly (readonly [name: string, from: Place])[];
  readonly when: readonly (readonly [from: Place, values: readonly unknown[]])[];
}

const OP = "defineFusion";
const RULE: OptionNames<FusionRule> = {
  calls: true,
  links: true,
  same: true,
  into: true,
  tensors: true,
  shapes: true,
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

/** Steps that lead from the last call to every other one; by links first. */
function stepsOf({ calls, links, same }: Pick<Fusion, "calls" | "links" | "same">): Step[] {
  const names = calls.map(([name]) => name);
  const known = new Set(names.slice(-1));
  const both = [...same, ...same.map(([a, b]) => [b, a] as const)];
  const steps: Step[] = [];
  while (known.size < names.length) {
    const link = links.find(({ input, output }) => known.has(input.call) && !known.has(output.call));
    const sibling = both.find(([from, to]) => known.has(from.call) && !known.has(to.call))?.[1].call;
    const sought = link?.output.call ?? sibling;
    if (sought === undefined) {
      const apart = names.filter((name) => !known.has(name));
      throw wrongValue(OP, "links", "lead from the last call to all others, with `same`", apart.join(", "));
    }
    const pairs = link
      ? [[link.input, link.output] as const]
      : both.filter(([from, to]) => known.has(from.call) && to.call === sought);
    steps.push(Object.freeze({ by: link ? "link" : "same", pairs: Object.freeze(pairs) }));
    known.add(sought);
  }
  return steps;
}

export const placeText = ({ call, name }: Place): string => `${call}.${name}`;

/** The places of which the op that results knows, and those that are the same as one of them. */
function accountedOf(places: readonly Place[], same: Fusion["same"]): readonly string[] {
  const accounted = new Set(places.map(placeText));
  for (let size = -1; size !== accounted.size; ) {
    size = accounted.size;
    for (const pair of same) {
      const [a, b] = pair.map(placeText) as [string, string];
      if (accounted.has(a)) accounted.add(b);
      if (accounted.has(b)) accounted.add(a);
    }
  }
  return Object.freeze([...accounted]);
}

function readCalls(value: unknown): Fusion["calls"] {
  const calls = readPairs("calls", value).map((entry) => {
    if (typeof entry[1] !== "string") throw wrongKind(OP, entry[0], "name an op", entry[1]);
    return Object.freeze(entry as [string, string]);
  });
  if (calls.length < 2) throw wrongValue(OP, "calls", "be at least two", calls.length);
  return Object.freeze(calls);
}

function readWhen(value: unknown, placeOf: (argument: string, value: unknown) => Place): Fusion["when"] {
  return readPairs("when", value).map(([from, list]) => {
    if (!isArray(list)) throw wrongKind(OP, "when", "be arrays of values", list);
    return Object.freeze([placeOf("when", from), Object.freeze([...list])] as const);
  });
}

/** A rule for `device.encoder({ optimize: { fuse: [...] } })`. It is read once, and changing it changes nothing. */
export function defineFusion(rule: FusionRule): Fusion {
  checkOptionNames<FusionRule>(OP, rule, RULE, "rule");
  const { into } = rule;
  if (typeof into !== "function" || !namesOf(OP, "into", into.op).includes("inputs"))
    throw wrongKind(OP, "into", "be an op", into);
  const calls = readCalls(rule.calls);
  const byName = new Map(calls);
  const placeOf = (argument: string, value: unknown) => readPlace(argument, value, byName);
  const pairsOf = (argument: "links" | "same") =>
    readPairs(argument, rule[argument] ?? {}).map(([a, b]) => [placeOf(argument, a), placeOf(argument, b)] as const);
  const named = (argument: "tensors" | "shapes" | "options", known: object) =>
    readPairs(argument, rule[argument] ?? {}).map(([name, from]) => {
      if (!Object.hasOwn(known, name)) throw wrongValue(OP, argument, `name those of ${into.op.name}`, name);
      return Object.freeze([name, placeOf(argument, from)] as const);
    });
  const links = pairsOf("links").map(([input, output]) => Object.freeze({ input, output }));
  const same = pairsOf("same").map((pair) => Object.freeze(pair));
  const tensors = named("tensors", { ...into.op.inputs, ...into.op.outputs });
  const shapes = named("shapes", rule.tensors);
  const options = named("options", into.op.params);
  const when = readWhen(rule.when ?? {}, placeOf);
  const known = [...tensors, ...options].map(([, from]) => from).concat(when.map(([from]) => from));
  const inputs = links.map(({ input }) => input);
  const all = [
    ...known,
    ...inputs,
    ...links.map(({ output }) => output),
    ...same.flat(),
    ...shapes.map(([, like]) => like),
  ];
  const namesIn = (call: string) => all.flatMap((place) => (place.call === call ? [place.name] : []));
  const fusion: Fusion = Object.freeze({
    calls,
    links: Object.freeze(links),
    same: Object.freeze(same),
    steps: Object.freeze(stepsOf({ calls, links, same })),
    names: Object.freeze(Object.fromEntries(calls.map(([call]) => [call, Object.freeze([...new Set(namesIn(call))])]))),
    accounted: accountedOf([...known, ...inputs], same),
    into,
    tensors: Object.freeze(tensors),
    shapes: Object.freeze(shapes),
    options: Object.freeze(options),
    when: Object.freeze(when),
  });
  fusions.add(fusion);
  return fusion;
}
