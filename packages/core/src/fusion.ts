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
 * Calls that one op can do with the same bits. They need not stand side by side: core finds a place for the op that results
 * to which all of them can move, and refuses when there is none.
 */
export interface FusionRule {
  /** The op of each call, by a name for the call. The call that is named last comes last in the recording. */
  calls: Readonly<Record<string, string>>;
  /**
   * Inputs that are outputs of other calls of the rule: `{ "product.a": "norm.out" }`. They are exactly the same view. An output that
   * is linked and is no output of the op that results is left out, if nobody else can see it; its op must write all of it.
   */
  links?: Readonly<Record<string, string>>;
  /**
   * Inputs of two calls that are exactly the same view, and options of two calls that are equal:
   * `{ "up.x": "gate.x", "up.outDtype": "gate.outDtype" }`. Calls that no link leads to are found by such an input.
   */
  same?: Readonly<Record<string, string>>;
  /** The op that results. */
  into: AnyOp;
  /** Where the op that results has its tensors from: `{ x: "norm.x", out: "product.out" }`; records are one name. */
  tensors: Readonly<Record<string, string>>;
  /**
   * Tensors of the op that results that it gets in the shape of another tensor: `{ a: "rule.g" }`. With `shapes`, what is
   * linked may have another shape on either side.
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

/** An input that is an output of another call. */
export interface Link {
  readonly input: Place;
  readonly output: Place;
}

/** How a call of a rule is found when others have been: it makes an input of `from`, or has an input that `from` has too. */
export type Step =
  | { readonly call: string; readonly link: Link }
  | { readonly call: string; readonly from: Place; readonly shares: Place };

/** A rule, checked and frozen. */
export interface Fusion {
  readonly calls: ReadonlyMap<string, string>;
  /** The call that comes last, which is found first. */
  readonly last: string;
  /** How the others are found, in order. */
  readonly steps: readonly Step[];
  readonly links: readonly Link[];
  readonly same: readonly (readonly [a: Place, b: Place])[];
  readonly into: AnyOp;
  readonly tensors: readonly (readonly [name: string, from: Place])[];
  readonly shapes: ReadonlyMap<string, Place>;
  readonly options: readonly (readonly [name: string, from: Place])[];
  readonly when: readonly (readonly [from: Place, values: readonly unknown[]])[];
  /** For each call the inputs, outputs and options that the rule speaks of: a call that has others stays as it is. */
  readonly known: ReadonlyMap<string, ReadonlySet<string>>;
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

/** How each call is found, from the last one on. */
function stepsOf({ calls, last, links, same }: Pick<Fusion, "calls" | "last" | "links" | "same">): Step[] {
  const found = new Set([last]);
  const steps: Step[] = [];
  const next = (): Step | undefined => {
    for (const link of links)
      if (found.has(link.input.call) && !found.has(link.output.call)) return { call: link.output.call, link };
    for (const pair of same)
      for (const [from, shares] of [pair, [...pair].reverse()] as (readonly [Place, Place])[])
        if (found.has(from.call) && !found.has(shares.call)) return { call: shares.call, from, shares };
    return undefined;
  };
  while (found.size < calls.size) {
    const step = next();
    if (!step)
      throw wrongValue(OP, "links", "lead, with same, from the last call to every other one", [...calls.keys()]);
    steps.push(step);
    found.add(step.call);
  }
  return steps;
}

const namesByCall = (calls: ReadonlyMap<string, string>, places: readonly Place[]) =>
  new Map([...calls.keys()].map((call) => [call, new Set(places.flatMap((at) => (at.call === call ? at.name : [])))]));

/** A rule for `device.encoder({ optimize: { fuse: [...] } })`. It is read once, and changing it changes nothing. */
export function defineFusion(rule: FusionRule): Fusion {
  checkOptionNames<FusionRule>(OP, rule, RULE, "rule");
  const { into } = rule;
  if (typeof into !== "function" || !namesOf(OP, "into", into.op).includes("inputs"))
    throw wrongKind(OP, "into", "be an op", into);
  const calls = new Map<string, string>();
  for (const [call, op] of readPairs("calls", rule.calls)) {
    if (typeof op !== "string") throw wrongKind(OP, call, "name an op", op);
    calls.set(call, op);
  }
  if (calls.size < 2) throw wrongValue(OP, "calls", "be at least two", calls.size);
  const place = (argument: string, value: unknown) => readPlace(argument, value, calls);
  const named = (argument: string, given: unknown, known: readonly string[]) =>
    readPairs(argument, given).map(([name, from]) => {
      if (!known.includes(name)) throw wrongValue(OP, argument, `name those of ${into.op.name}`, name);
      return Object.freeze([name, place(argument, from)] as const);
    });
  const tensors = named("tensors", rule.tensors, Object.keys({ ...into.op.inputs, ...into.op.outputs }));
  const parts = {
    calls,
    last: [...calls.keys()].at(-1) as string,
    links: readPairs("links", rule.links ?? {}).map(([input, output]) =>
      Object.freeze({ input: place("links", input), output: place("links", output) }),
    ),
    same: readPairs("same", rule.same ?? {}).map(([a, b]) =>
      Object.freeze([place("same", a), place("same", b)] as const),
    ),
  };
  const values = readPairs("when", rule.when ?? {}).map(([from, list]) => {
    if (!isArray(list)) throw wrongKind(OP, "when", "be arrays of values", list);
    return Object.freeze([place("when", from), Object.freeze([...list])] as const);
  });
  const shapes = named("shapes", rule.shapes ?? {}, Object.keys(rule.tensors));
  const options = named("options", rule.options ?? {}, Object.keys(into.op.params));
  const fusion: Fusion = Object.freeze({
    ...parts,
    steps: stepsOf(parts),
    into,
    tensors,
    shapes: new Map(shapes),
    options,
    when: values,
    known: namesByCall(calls, [
      ...parts.links.flatMap(({ input, output }) => [input, output]),
      ...parts.same.flat(),
      ...[...tensors, ...options].map(([, from]) => from),
      ...values.map(([from]) => from),
    ]),
  });
  fusions.add(fusion);
  return fusion;
}
