// Applies rules of fusion to a recording: which calls can become one, and why others cannot.
import type { Buffer } from "./buffer.ts";
import { ArgumentRangeError, ArgumentTypeError, MlxtsError } from "./errors.ts";
import type { Fusion, Link, Place, Step } from "./fusion.ts";
import type { GraphNode, OpCall } from "./graph.ts";
import { overlaps, sameRange } from "./ranges.ts";
import { Tensor } from "./tensor.ts";
import {
  conflict,
  feeds,
  hasUnknownEffect,
  NO_UNIT,
  nameOf,
  reads,
  type Unit,
  UnitUses,
  unitsOf,
  writes,
} from "./units.ts";

/** What a recording tells the rules. */
export interface FuseContext {
  /** Whether nobody can see a tensor's memory after the recording. */
  isScratch(buffer: Buffer): boolean;
  /** Whether a call has called other ops: its own dispatches are not all that it does. */
  isOuter(call: OpCall): boolean;
  /** The dispatches of a call of the op that results; it makes its own checks and may refuse. */
  record(into: Fusion["into"], inputs: Record<string, unknown>, options: Record<string, unknown>): GraphNode[];
}

/** The calls of a rule that were found, as places in the list of units. */
type Match = Map<string, number>;

/** Why calls stay as they are: a reason to report, or that they are not those of a rule. */
type Refusal = string;
const NO_MATCH: Refusal = "";

const sameElements = (a: Tensor, b: Tensor): boolean =>
  a.buffer === b.buffer && a.byteOffset === b.byteOffset && a.dtype === b.dtype && a.size === b.size;

const sameView = (a: Tensor, b: Tensor): boolean =>
  sameElements(a, b) && a.shape.length === b.shape.length && a.shape.every((dim, axis) => dim === b.shape[axis]);

const tensorOf = (call: OpCall, name: string): Tensor | undefined => call.tensors[name] ?? call.outputs[name];

const samePlace = (a: Place, b: Place): boolean => a.call === b.call && a.name === b.name;

/** Whether an error tells that an op does not take what it was given. */
const isRefusal = (error: unknown): error is Error =>
  error instanceof ArgumentTypeError ||
  error instanceof ArgumentRangeError ||
  (error instanceof MlxtsError && (error.code === "UnsupportedDtype" || error.code === "LimitExceeded"));

class Fuser {
  fused = 0;
  /** Why calls that a rule names stayed as they were, once for each place and rule. */
  readonly refusals = new Map<string, Refusal>();
  private readonly units: Unit[];
  private readonly uses: UnitUses;
  private readonly context: FuseContext;

  constructor(nodes: readonly GraphNode[], context: FuseContext) {
    this.units = unitsOf(nodes);
    this.uses = new UnitUses(this.units);
    this.context = context;
  }

  get nodes(): GraphNode[] {
    return this.units.flatMap(({ nodes }) => nodes);
  }

  /** Applies each rule to the whole recording, in the order of the list, until none does anything. */
  run(rules: readonly Fusion[]): void {
    for (let before = -1; before !== this.fused; ) {
      before = this.fused;
      this.refusals.clear();
      for (const [index, rule] of rules.entries())
        for (let at = 0; at < this.units.length; at++) while (this.apply(rule, index, at));
    }
  }

  private unit(at: number): Unit {
    return this.units[at] as Unit;
  }

  private callOf(match: Match, { call }: Place): OpCall {
    return this.unit(match.get(call) as number).call as OpCall;
  }

  /** Makes the calls of a rule one, if its last call is at this place; else notes why not. */
  private apply(rule: Fusion, index: number, at: number): boolean {
    if (this.unit(at).call?.op !== rule.calls.get(rule.last)) return false;
    const match: Match = new Map([[rule.last, at]]);
    const result = this.fuseAt(rule, match);
    if (typeof result !== "string") {
      for (const each of match.values()) this.units[each] = NO_UNIT;
      this.units[result.place] = result.unit;
      this.uses.add(result.place, result.unit);
      this.fused += match.size - 1;
      return true;
    }
    if (result !== NO_MATCH) this.refusals.set(`${index} ${at}`, `${[...rule.calls.values()].join(" + ")}: ${result}`);
    return false;
  }

  /** The unit that results and its place, or why there is none. */
  private fuseAt(rule: Fusion, match: Match): { unit: Unit; place: number } | Refusal {
    for (const step of rule.steps) {
      const refusal = "link" in step ? this.findMaker(rule, step, match) : this.findSharer(rule, step, match);
      if (refusal !== undefined) return refusal;
    }
    const refusal = this.whyNot(rule, match);
    if (refusal !== undefined) return refusal;
    const place = this.placeOf(match);
    if (typeof place === "string") return place;
    const nodes = this.record(rule, match);
    if (typeof nodes === "string") return nodes;
    const before = [...match.values()].reduce((sum, at) => sum + this.unit(at).nodes.length, 0);
    if (nodes.length >= before) return `${rule.into.op.name} takes as many dispatches`;
    return { unit: { call: nodes[0]?.call, nodes }, place };
  }

  /** Finds the call whose output an input is. */
  private findMaker(
    { calls }: Fusion,
    { call, link }: { call: string; link: Link },
    match: Match,
  ): Refusal | undefined {
    const consumer = match.get(link.input.call) as number;
    const tensor = this.callOf(match, link.input).tensors[link.input.name];
    if (!tensor) return NO_MATCH;
    for (const at of this.uses.writersBefore(tensor.buffer, consumer)) {
      if (!writes(this.unit(at), tensor.range)) continue;
      const maker = this.unit(at).call;
      const made = maker?.op === calls.get(call) ? maker?.outputs[link.output.name] : undefined;
      if (!made || !overlaps(made.range, tensor.range) || [...match.values()].includes(at)) return NO_MATCH;
      match.set(call, at);
      return undefined;
    }
    return NO_MATCH;
  }

  /** Finds the latest call that has an input that a call found before has too. */
  private findSharer(
    rule: Fusion,
    { call, from, shares }: Exclude<Step, { link: Link }>,
    match: Match,
  ): Refusal | undefined {
    const last = match.get(rule.last) as number;
    const tensor = this.callOf(match, from).tensors[from.name];
    if (!tensor) return NO_MATCH;
    for (const at of this.uses.usersBefore(tensor.buffer, last)) {
      const unit = this.unit(at);
      const other = unit.call?.op === rule.calls.get(call) ? unit.call?.tensors[shares.name] : undefined;
      if (other && sameView(other, tensor) && ![...match.values()].includes(at)) {
        match.set(call, at);
        if (this.differing(rule, match) === undefined) return undefined;
        match.delete(call);
      }
      // What came before it was made are no calls with the same input.
      if (writes(unit, tensor.range)) return NO_MATCH;
    }
    return NO_MATCH;
  }

  /** The first pair of a rule's `same`, both of calls that were found, that is not the same. */
  private differing({ same }: Fusion, match: Match): Place | undefined {
    for (const [a, b] of same) {
      if (!match.has(a.call) || !match.has(b.call)) continue;
      const [callA, callB] = [this.callOf(match, a), this.callOf(match, b)];
      const [x, y] = [callA.tensors[a.name], callB.tensors[b.name]];
      if (x && y ? !sameView(x, y) : x || y || callA.options[a.name] !== callB.options[b.name]) return a;
    }
    return undefined;
  }

  /** Why calls that belong together cannot become one. */
  private whyNot(rule: Fusion, match: Match): Refusal | undefined {
    const different = this.differing(rule, match);
    if (different) return `\`${different.name}\` of ${rule.calls.get(different.call)} is another one`;
    for (const [from, values] of rule.when) {
      const value = this.callOf(match, from).options[from.name];
      if (!values.includes(value)) return `\`${from.name}\` is ${String(value)}`;
    }
    for (const link of rule.links) {
      const refusal = this.whyNotLinked(rule, link, match);
      if (refusal !== undefined) return refusal;
    }
    for (const [name, at] of match) {
      const refusal = this.whyNeeded(rule, name, match) ?? this.whyOrdered(rule, name, at, match);
      if (refusal !== undefined) return refusal;
    }
    return undefined;
  }

  /** Why an input is not just the output that a rule says, or why that output cannot be left out. */
  private whyNotLinked(rule: Fusion, { input, output }: Link, match: Match): Refusal | undefined {
    const [consumer, maker] = [this.callOf(match, input), this.callOf(match, output)];
    const [tensor, made] = [consumer.tensors[input.name], maker.outputs[output.name]];
    if (!tensor || !made) return NO_MATCH;
    if (!(rule.shapes.size > 0 ? sameElements : sameView)(made, tensor))
      return overlaps(made.range, tensor.range)
        ? `\`${input.name}\` is not the whole output \`${output.name}\` in its shape`
        : NO_MATCH;
    for (const [name, other] of Object.entries(consumer.tensors)) {
      if (rule.links.some((link) => samePlace(link.input, { call: input.call, name }))) continue;
      const of = Object.entries(maker.outputs).find(([, out]) => out && overlaps(other.range, out.range));
      if (of) return `\`${name}\` is \`${of[0]}\` too`;
    }
    if (this.isWritten(rule, output)) return undefined;
    return this.whySeen(made, match.get(output.call) as number, match.get(input.call) as number, output.name);
  }

  private isWritten({ tensors, into }: Fusion, output: Place): boolean {
    return tensors.some(([name, from]) => name in into.op.outputs && samePlace(from, output));
  }

  /** Why the output of a call cannot be left out: who can see it. */
  private whySeen(made: Tensor, maker: number, consumer: number, name: string): Refusal | undefined {
    const { range } = made;
    const { op } = this.unit(maker).call as OpCall;
    const { outputs } = this.unit(consumer).call as OpCall;
    const overwritten = Object.values(outputs).some((out) => out && sameRange(out.range, range));
    if (!overwritten && !this.context.isScratch(made.buffer)) return `\`${name}\` of ${op} stays visible`;
    const reader = this.uses
      .usersOf(made.buffer)
      .find((at) => at > maker && at !== consumer && (at < consumer || !overwritten) && reads(this.unit(at), range));
    return reader === undefined ? undefined : `\`${name}\` of ${op} is also read by ${nameOf(this.unit(reader))}`;
  }

  /** Why a call does more than the op that results. */
  private whyNeeded(rule: Fusion, name: string, match: Match): Refusal | undefined {
    const call = this.callOf(match, { call: name, name });
    const { op } = call;
    if (this.context.isOuter(call)) return `${op} calls other ops`;
    const unknown = (values: object) =>
      Object.entries(values).find(([each, value]) => value !== undefined && !rule.known.get(name)?.has(each))?.[0];
    const asked = unknown(call.outputs);
    if (asked !== undefined) return `\`${asked}\` of ${op} is asked for`;
    const given = unknown(call.inputs);
    if (given !== undefined) return `\`${given}\` of ${op} is given`;
    const option = unknown(call.options);
    return option === undefined ? undefined : `\`${option}\` of ${op} is set`;
  }

  /** Why a call must come before another one of the rule, though it makes none of its inputs. */
  private whyOrdered(rule: Fusion, name: string, at: number, match: Match): Refusal | undefined {
    const unit = this.unit(at);
    for (const [other, later] of match) {
      const linked = rule.links.some(({ input, output }) => output.call === name && input.call === other);
      if (later > at && !linked && feeds(unit, this.unit(later)))
        return `${nameOf(this.unit(later))} uses the output of ${nameOf(unit)}`;
    }
    return undefined;
  }

  /** A place to which all calls can move: the last one if possible. Else who comes between. */
  private placeOf(match: Match): number | Refusal {
    const places = [...match.values()].sort((a, b) => b - a);
    let refusal: Refusal = NO_MATCH;
    for (const place of places) {
      const reason = this.whyNotTo(place, places);
      if (reason === undefined) return place;
      refusal ||= reason;
    }
    return refusal;
  }

  private whyNotTo(place: number, places: readonly number[]): Refusal | undefined {
    for (const at of places) {
      const unit = this.unit(at);
      for (let between = Math.min(at, place) + 1; between < Math.max(at, place); between++) {
        if (places.includes(between)) continue;
        const other = this.unit(between);
        if (conflict(unit, other)) return `${nameOf(other)} comes between and uses memory of ${nameOf(unit)}`;
        if (hasUnknownEffect(other)) return `${nameOf(other)} comes between and writes nothing`;
      }
    }
    return undefined;
  }

  /** The dispatches of the op that results, or why it refuses. */
  private record(rule: Fusion, match: Match): GraphNode[] | Refusal {
    const inputs: Record<string, unknown> = {};
    for (const [name, from] of rule.tensors) {
      const call = this.callOf(match, from);
      const value = call.inputs[from.name] ?? call.outputs[from.name];
      if (value === undefined) continue;
      const like = rule.shapes.get(name);
      const { shape } = (like && tensorOf(this.callOf(match, like), like.name)) ?? {};
      if (shape && value instanceof Tensor && shape.reduce((a, b) => a * b, 1) !== value.size)
        return `\`${from.name}\` has not as many elements as \`${like?.name}\``;
      inputs[name] = shape && value instanceof Tensor ? value.reshape(shape) : value;
    }
    const options: Record<string, unknown> = {};
    for (const [name, from] of rule.options) {
      const value = this.callOf(match, from).options[from.name];
      if (value !== undefined) options[name] = value;
    }
    try {
      return this.context.record(rule.into, inputs, options);
    } catch (error) {
      if (isRefusal(error)) return error.message;
      throw error;
    }
  }
}

/** The dispatches after all rules have been applied, how many calls became part of another, and why others did not. */
export function fuse(nodes: readonly GraphNode[], rules: readonly Fusion[], context: FuseContext) {
  const fuser = new Fuser(nodes, context);
  fuser.run(rules);
  return { nodes: fuser.nodes, fused: fuser.fused, refusals: [...fuser.refusals.values()] };
}
