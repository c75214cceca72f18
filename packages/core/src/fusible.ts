// Whether calls that a rule of fusion describes can become one call, and where it stands.
import type { Buffer } from "./buffer.ts";
import { type Fusion, type Place, placeText } from "./fusion.ts";
import type { OpCall } from "./graph.ts";
import { inputTensors, opParams } from "./op_descriptor.ts";
import type { OpDescriptor } from "./op_types.ts";
import { overlaps, type Range, sameRange } from "./ranges.ts";
import { sameBytes, Tensor } from "./tensor.ts";
import { actsOutside, first, nameOf, type Unit, type Units } from "./units.ts";

/** Where each call of a rule was found, by its name there. */
export type Match = ReadonlyMap<string, number>;

/** What a recording tells the rules. */
export interface FuseContext {
  /** Whether nobody can see a tensor's memory after the recording. */
  isScratch(buffer: Buffer): boolean;
  /** Whether a call has called other ops: its own dispatches are not all that it does. */
  isOuter(call: OpCall): boolean;
}

/** The calls do not belong together: there is nothing to report. */
export const NO_PAIR = "";

/** Whether two tensors are the same view, or may be that by a rule that gives tensors other shapes: the same elements. */
export const isSame = (a: Tensor, b: Tensor, { shapes }: Fusion): boolean =>
  sameBytes(a, b) && a.dtype === b.dtype && (shapes.length > 0 || a.shape.join() === b.shape.join());

/** Whether two inputs are the same: tensors, or records of the same tensors and attributes. */
function isSameInput(a: unknown, b: unknown, rule: Fusion): boolean {
  if (a instanceof Tensor && b instanceof Tensor) return isSame(a, b, rule);
  if (a instanceof Tensor || b instanceof Tensor || !a || !b || typeof a !== "object" || typeof b !== "object")
    return a === b;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const names = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...names].every((name) => isSameInput(left[name], right[name], rule));
}

const namesByOp = new WeakMap<OpDescriptor, ReadonlySet<string>>();

function namesOf(descriptor: OpDescriptor): ReadonlySet<string> {
  let names = namesByOp.get(descriptor);
  if (!names) {
    const lists = [inputTensors(descriptor), Object.entries(descriptor.outputs), opParams(descriptor)];
    names = new Set([...Object.keys(descriptor.inputs), ...lists.flat().map(([name]) => name as string)]);
    namesByOp.set(descriptor, names);
  }
  return names;
}

/** Whether dispatches write all of an output, and read none of it before, but where it is an input too. */
function isWritten({ call, nodes }: Unit, range: Range): boolean {
  const isInput = Object.values((call as OpCall).tensors).some((tensor) => overlaps(tensor.range, range));
  let missing: Range[] = [range];
  for (const { accesses } of nodes) {
    if (!isInput && accesses.reads.some((read) => missing.some((part) => overlaps(part, read)))) return false;
    for (const written of accesses.writes)
      missing = missing.flatMap((part) =>
        overlaps(part, written)
          ? [
              { begin: part.begin, end: Math.max(part.begin, written.begin) },
              { begin: Math.min(part.end, written.end), end: part.end },
            ].filter(({ begin, end }) => begin < end)
          : [part],
      );
  }
  return missing.every(({ begin, end }) => begin === end);
}

/** One match of a rule: why its calls cannot become one, and where the op that results can stand. */
export class Fusible {
  private readonly rule: Fusion;
  private readonly match: Match;
  private readonly units: Units;
  private readonly context: FuseContext;
  readonly places: ReadonlySet<number>;

  constructor(rule: Fusion, match: Match, units: Units, context: FuseContext) {
    this.rule = rule;
    this.match = match;
    this.units = units;
    this.context = context;
    this.places = new Set(match.values());
  }

  get into(): Fusion["into"] {
    return this.rule.into;
  }

  /** How many dispatches the calls are. */
  get dispatches(): number {
    return [...this.places].reduce((sum, place) => sum + this.units.at(place).nodes.length, 0);
  }

  /** The same text for the same calls, whatever they are for the rule. */
  get text(): string {
    return [...this.places]
      .sort((a, b) => a - b)
      .map((place) => `${place} ${this.units.changes(place)}`)
      .join();
  }

  private placeOf(call: string): number {
    return this.match.get(call) as number;
  }

  private call(name: string): OpCall {
    return this.units.at(this.placeOf(name)).call as OpCall;
  }

  private tensor({ call, name }: Place): Tensor | undefined {
    const { tensors, outputs } = this.call(call);
    return outputs[name] ?? tensors[name];
  }

  /** Why the calls cannot become one; undefined if they can, as far as this tells. */
  whyNot(): string | undefined {
    const { rule, match } = this;
    const calls = [...match.keys()];
    return (
      first(calls, (call) => this.whyUnknown(call)) ??
      first(rule.links, (link) => this.whyNoLink(link)) ??
      first(rule.same, (pair) => this.whyOther(pair)) ??
      first(rule.when, ([from, values]) => {
        const value = this.call(from.call).options[from.name];
        return values.includes(value) ? undefined : `\`${from.name}\` is ${String(value)}`;
      }) ??
      first(calls, (call) => this.whyMore(call)) ??
      first(calls, (call) => this.whyEntangled(call))
    );
  }

  /** Where all calls can stand, the last such place; or why there is none. */
  place(): number | string {
    const { places, units } = this;
    let why: string | undefined;
    for (const target of [...places].sort((a, b) => b - a)) {
      const fixed = first(places, (place) => units.whyFixed(place, target, places));
      if (fixed === undefined) return target;
      why ??= fixed;
    }
    return why as string;
  }

  /** An op that has the name that a rule knows, but not the tensors or options. */
  private whyUnknown(call: string): string | undefined {
    const { op, descriptor } = this.call(call);
    const known = namesOf(descriptor);
    const missing = this.rule.names[call]?.find((name) => !known.has(name));
    return missing === undefined ? undefined : `this ${op} has no \`${missing}\``;
  }

  private whyNoLink({ input, output }: Fusion["links"][number]): string | undefined {
    const consumer = this.call(input.call);
    const producer = this.call(output.call);
    const tensor = consumer.tensors[input.name];
    const made = producer.outputs[output.name];
    if (!tensor || !made || !overlaps(made.range, tensor.range)) return NO_PAIR;
    if (this.units.lastWriter(tensor.range, this.placeOf(input.call)) !== this.placeOf(output.call)) return NO_PAIR;
    if (!isSame(made, tensor, this.rule))
      return `\`${input.name}\` is not the whole output \`${output.name}\` in its shape`;
    return this.whyLinkedElsewhere(output, made) ?? (this.isCarried(output) ? undefined : this.whyNeeded(output, made));
  }

  /** A linked output is an input of later calls only as links tell. */
  private whyLinkedElsewhere(output: Place, made: Tensor): string | undefined {
    for (const [call, place] of this.match) {
      if (place <= this.placeOf(output.call)) continue;
      for (const [name, tensor] of Object.entries(this.call(call).tensors))
        if (overlaps(tensor.range, made.range) && !this.isLink({ call, name }, output))
          return `\`${name}\` is \`${output.name}\` too`;
    }
    return undefined;
  }

  private isLink(input: Place, output: Place): boolean {
    return this.rule.links.some(
      (link) => placeText(link.input) === placeText(input) && placeText(link.output) === placeText(output),
    );
  }

  /** Whether the op that results writes an output. */
  private isCarried(output: Place): boolean {
    const { tensors, into } = this.rule;
    return tensors.some(
      ([name, from]) => Object.hasOwn(into.op.outputs, name) && placeText(from) === placeText(output),
    );
  }

  /** Why the output of a call cannot be left out: who can see it. */
  private whyNeeded({ call, name }: Place, made: Tensor): string | undefined {
    const { range } = made;
    const from = this.placeOf(call);
    const { op } = this.call(call);
    const overwriting = [...this.match].flatMap(([later, place]) => {
      const { outputs } = this.call(later);
      return place > from && Object.values(outputs).some((out) => out && sameRange(out.range, range)) ? [place] : [];
    });
    if (overwriting.length === 0 && !this.context.isScratch(made.buffer)) return `\`${name}\` of ${op} stays visible`;
    // An op may leave a part of its output to an earlier call: what that has written is then still needed.
    const earlier = this.units.lastWriter(range, from);
    if (earlier !== undefined && [...this.units.between("reads", range, earlier, from + 1)].length === 0)
      return `\`${name}\` of ${op} is also written by ${nameOf(this.units.at(earlier))}`;
    const end = overwriting.length > 0 ? Math.min(...overwriting) : this.units.length;
    for (const reader of this.units.between("reads", range, from, end))
      if (!this.places.has(reader)) return `\`${name}\` of ${op} is also read by ${nameOf(this.units.at(reader))}`;
    return undefined;
  }

  /** Inputs that must be the same tensor hold the same numbers; options have the same value. */
  private whyOther([a, b]: Fusion["same"][number]): string | undefined {
    const [left, right] = [this.call(a.call), this.call(b.call)];
    const differ = `\`${a.name}\` of ${a.call} and \`${b.name}\` of ${b.call} differ`;
    const isInput = a.name in left.descriptor.inputs || a.name in left.tensors;
    if (!isInput) return left.options[a.name] === right.options[b.name] ? undefined : differ;
    const inputOf = ({ tensors, inputs }: OpCall, name: string) => tensors[name] ?? inputs[name];
    if (!isSameInput(inputOf(left, a.name), inputOf(right, b.name), this.rule)) return differ;
    const [low, high] = [this.placeOf(a.call), this.placeOf(b.call)].sort((x, y) => x - y) as [number, number];
    const value = inputOf(left, a.name);
    const parts = value instanceof Tensor ? [value] : Object.values((value ?? {}) as object);
    return first(parts, (part: unknown) =>
      part instanceof Tensor && [...this.units.between("writes", part.range, low - 1, high)].length > 0
        ? `\`${a.name}\` is written between ${a.call} and ${b.call}`
        : undefined,
    );
  }

  /** What a call does beside what the rule describes. */
  private whyMore(call: string): string | undefined {
    const { rule } = this;
    const unit = this.units.at(this.placeOf(call));
    const { op, descriptor, inputs, outputs, options } = unit.call as OpCall;
    const isAccounted = (name: string) => rule.accounted.includes(placeText({ call, name }));
    if (this.context.isOuter(unit.call as OpCall)) return `${op} calls other ops`;
    if (actsOutside(unit)) return `${op} has a dispatch that writes nothing`;
    for (const name of Object.keys(descriptor.inputs))
      if (inputs[name] !== undefined && !isAccounted(name)) return `\`${name}\` of ${op} is given`;
    for (const [name, spec] of Object.entries(descriptor.params))
      if (options[name] !== spec.default && !isAccounted(name))
        return `\`${name}\` of ${op} is ${String(options[name])}`;
    for (const [name, tensor] of Object.entries(outputs)) {
      if (!tensor) continue;
      const isLinked = rule.links.some(({ output }) => output.call === call && output.name === name);
      if (!isLinked && !this.isCarried({ call, name })) return `\`${name}\` of ${op} is asked for`;
      if (!isWritten(unit, tensor.range)) return `\`${name}\` of ${op} is written only in part`;
    }
    return undefined;
  }

  /** A later call that uses what a call has written, but not as links tell. */
  private whyEntangled(call: string): string | undefined {
    const { units, match, rule } = this;
    const { op, outputs } = this.call(call);
    const linked = rule.links.flatMap(({ output }) => {
      const made = output.call === call ? outputs[output.name] : undefined;
      return made ? [made.range] : [];
    });
    // Links have been checked: what lies in a linked output is used as they tell.
    const isLinked = (range: Range) => linked.some(({ begin, end }) => begin <= range.begin && range.end <= end);
    const isFree = (range: Range) => !isLinked(range);
    const writes = units.at(this.placeOf(call)).nodes.flatMap(({ accesses }) => accesses.writes);
    for (const [later, place] of match) {
      if (place <= this.placeOf(call)) continue;
      const used = units.at(place).nodes.flatMap(({ accesses }) => [...accesses.reads, ...accesses.writes]);
      if (used.filter(isFree).some((range) => writes.some((written) => overlaps(written, range))))
        return `${later} uses the output of ${op}`;
    }
    return undefined;
  }

  /** The inputs of the op that results; a text if the rule takes them from where they cannot come. */
  inputs(): Record<string, unknown> | string {
    const { rule } = this;
    const inputs: Record<string, unknown> = {};
    for (const [name, from] of rule.tensors) {
      const call = this.call(from.call);
      const isOutput = Object.hasOwn(rule.into.op.outputs, name);
      if (isOutput !== Object.hasOwn(call.descriptor.outputs, from.name))
        return `\`${name}\` and \`${from.name}\` of ${call.op} are not both outputs`;
      const value = isOutput ? call.outputs[from.name] : (call.inputs[from.name] ?? call.tensors[from.name]);
      if (value === undefined) continue;
      const [, like] = rule.shapes.find(([each]) => each === name) ?? [];
      const { shape } = (like && this.tensor(like)) ?? {};
      if (!shape || !(value instanceof Tensor)) inputs[name] = value;
      else if (shape.reduce((a, b) => a * b, 1) === value.size) inputs[name] = value.reshape(shape);
      else return `\`${from.name}\` has not as many elements as \`${like?.name}\``;
    }
    return inputs;
  }

  options(): Record<string, unknown> {
    const entries = this.rule.options.map(([name, from]) => [name, this.call(from.call).options[from.name]]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  }
}
