// Applies rules of fusion to a recording: which calls can become one, and why others cannot.
import type { Buffer } from "./buffer.ts";
import type { Fusion, Place } from "./fusion.ts";
import type { GraphNode, OpCall } from "./graph.ts";
import { type Accesses, overlaps, type Range, sameRange } from "./ranges.ts";
import type { Tensor } from "./tensor.ts";

/** What a recording tells the rules. */
export interface FuseContext {
  /** Whether nobody can see a tensor's memory after the recording. */
  isScratch(buffer: Buffer): boolean;
  /** Whether a call has called other ops: its own dispatches are not all that it does. */
  isOuter(call: OpCall): boolean;
  /** The dispatches of a call of the op that results; it makes its own checks and may refuse. */
  record(into: Fusion["into"], inputs: Record<string, unknown>, options: Record<string, unknown>): GraphNode[];
}

/** Dispatches of one call, side by side. */
interface Unit {
  readonly call: OpCall | undefined;
  readonly nodes: readonly GraphNode[];
}

/** The calls of a rule that were found, as places in the list of units. */
type Match = ReadonlyMap<string, number>;

const NONE: Unit = { call: undefined, nodes: [] };

const touches = (ranges: readonly Range[], range: Range): boolean => ranges.some((each) => overlaps(each, range));

const some = ({ nodes }: Unit, test: (accesses: Accesses) => boolean): boolean =>
  nodes.some(({ accesses }) => test(accesses));

const sameView = (a: Tensor, b: Tensor): boolean =>
  a.buffer === b.buffer &&
  a.byteOffset === b.byteOffset &&
  a.dtype === b.dtype &&
  a.shape.length === b.shape.length &&
  a.shape.every((dim, axis) => dim === b.shape[axis]);

/** The tensors of a call by name; parts of records by their own names. */
function* tensorsOf({ tensors, outputs }: OpCall): Iterable<[name: string, tensor: Tensor]> {
  yield* Object.entries(tensors);
  for (const [name, tensor] of Object.entries(outputs)) if (tensor) yield [name, tensor];
}

const nameOf = ({ call, nodes }: Unit): string => call?.op ?? nodes[0]?.accesses.label ?? "";

class Fuser {
  fused = 0;
  /** Why calls that a rule names stayed as they are, once for each place and rule. */
  readonly refusals = new Map<string, string>();
  private readonly units: Unit[];
  /** Where each buffer is used. Places whose unit has become part of another stay in the list. */
  private readonly uses = new Map<Buffer, Set<number>>();
  private readonly rules: readonly Fusion[];
  private readonly context: FuseContext;

  constructor(nodes: readonly GraphNode[], rules: readonly Fusion[], context: FuseContext) {
    this.units = unitsOf(nodes);
    for (const [at, unit] of this.units.entries()) this.noteUses(at, unit);
    this.rules = rules;
    this.context = context;
  }

  get nodes(): GraphNode[] {
    return this.units.flatMap(({ nodes }) => nodes);
  }

  /** Applies the rules until none does anything. */
  run(): void {
    for (let before = -1; before !== this.fused; ) {
      before = this.fused;
      this.refusals.clear();
      for (let at = 0; at < this.units.length; at++) while (this.rules.some((rule) => this.apply(rule, at)));
    }
  }

  private noteUses(at: number, { nodes }: Unit): void {
    for (const { dispatch } of nodes)
      for (const tensor of Object.values(dispatch.buffers)) {
        if (!tensor) continue;
        const places = this.uses.get(tensor.buffer) ?? new Set<number>();
        this.uses.set(tensor.buffer, places.add(at));
      }
  }

  private unit(at: number): Unit {
    return this.units[at] as Unit;
  }

  private callOf(match: Match, { call }: Place): OpCall {
    return this.unit(match.get(call) as number).call as OpCall;
  }

  /** Makes the calls of a rule one, if its last call is at this place; else tells why not. */
  private apply(rule: Fusion, last: number): boolean {
    const { calls, into } = rule;
    const [name, op] = calls.at(-1) as [string, string];
    if (this.unit(last).call?.op !== op) return false;
    const match = new Map([[name, last]]);
    const refuse = (reason: string) => {
      this.refusals.set(
        `${last} ${calls.join()} ${into.op.name}`,
        `${calls.map(([, each]) => each).join(" + ")}: ${reason}`,
      );
      return false;
    };
    for (const link of rule.links) {
      const reason = this.follow(rule, link, match);
      if (reason === NO_PAIR) return false;
      if (reason !== undefined) return refuse(reason);
    }
    const reason = this.whyNot(rule, match, last);
    if (reason !== undefined) return refuse(reason);
    const nodes = this.record(rule, match);
    if (typeof nodes === "string") return refuse(nodes);
    for (const at of match.values()) this.units[at] = NONE;
    this.units[last] = { call: nodes[0]?.call, nodes };
    this.noteUses(last, this.unit(last));
    this.fused += calls.length - 1;
    return true;
  }

  /** Finds the call whose output an input is. Gives why it cannot be left out, or that no call of the rule made it. */
  private follow(
    rule: Fusion,
    { input, output }: Fusion["links"][number],
    match: Map<string, number>,
  ): string | undefined {
    const consumer = match.get(input.call) as number;
    const call = this.unit(consumer).call as OpCall;
    const tensor = call.tensors[input.name];
    if (!tensor) return NO_PAIR;
    const { range } = tensor;
    let at = consumer - 1;
    while (at >= 0 && !some(this.unit(at), ({ writes }) => touches(writes, range))) at--;
    const producer = at < 0 ? undefined : this.unit(at).call;
    if (!producer || producer.op !== rule.calls.find(([name]) => name === output.call)?.[1]) return NO_PAIR;
    const made = producer.outputs[output.name];
    if (!made || !overlaps(made.range, range)) return NO_PAIR;
    if (!sameView(made, tensor)) return `\`${input.name}\` is not the whole output \`${output.name}\` in its shape`;
    for (const [name, other] of tensorsOf(call))
      if (name in call.tensors && name !== input.name && overlaps(other.range, range))
        return `\`${name}\` is \`${output.name}\` too`;
    match.set(output.call, at);
    return this.isWritten(rule, output) ? undefined : this.whyNeeded(producer, made, at, consumer, output.name);
  }

  private isWritten({ tensors, into }: Fusion, output: Place): boolean {
    return tensors.some(
      ([name, { call, name: from }]) => name in into.op.outputs && call === output.call && from === output.name,
    );
  }

  /** Why the output of a call cannot be left out: who can see it. */
  private whyNeeded(producer: OpCall, made: Tensor, from: number, consumer: number, name: string): string | undefined {
    const { range } = made;
    const { outputs } = this.unit(consumer).call as OpCall;
    const overwritten = Object.values(outputs).some((out) => out && sameRange(out.range, range));
    const isScratch = this.context.isScratch(made.buffer);
    if (!overwritten && !isScratch) return `\`${name}\` of ${producer.op} stays visible`;
    const isReader = (at: number) => at !== consumer && some(this.unit(at), ({ reads }) => touches(reads, range));
    const reader = isScratch
      ? // Only views of its buffer show scratch.
        [...(this.uses.get(made.buffer) ?? [])].find(
          (at) => at > from && (at < consumer || !overwritten) && isReader(at),
        )
      : placesBetween(from, consumer).find(isReader);
    if (reader !== undefined) return `\`${name}\` of ${producer.op} is also read by ${nameOf(this.unit(reader))}`;
    return undefined;
  }

  /** Why calls that belong together cannot become one. */
  private whyNot(rule: Fusion, match: Match, last: number): string | undefined {
    const places = new Set(match.values());
    for (const [from, values] of rule.when) {
      const value = this.callOf(match, from).options[from.name];
      if (!values.includes(value)) return `\`${from.name}\` is ${String(value)}`;
    }
    for (const [call, at] of match) {
      const unit = this.unit(at);
      const { outputs, op } = unit.call as OpCall;
      if (this.context.isOuter(unit.call as OpCall)) return `${op} calls other ops`;
      for (const [name, tensor] of Object.entries(outputs)) {
        const output = { call, name };
        const linked = rule.links.some((link) => link.output.call === call && link.output.name === name);
        if (tensor && !linked && !this.isWritten(rule, output)) return `\`${name}\` of ${op} is asked for`;
      }
      for (let between = at + 1; between < last; between++)
        if (!places.has(between) && conflict(unit, this.unit(between)))
          return `${nameOf(this.unit(between))} comes between and uses memory of ${op}`;
      for (const [other, later] of match) {
        const linked = rule.links.some(({ input, output }) => output.call === call && input.call === other);
        if (later > at && !linked && conflict({ ...unit, nodes: unit.nodes.map(writesOnly) }, this.unit(later)))
          return `${other} uses the output of ${op}`;
      }
    }
    return undefined;
  }

  private record(rule: Fusion, match: Match): GraphNode[] | string {
    const inputs: Record<string, unknown> = {};
    for (const [name, from] of rule.tensors) {
      const call = this.callOf(match, from);
      const value = call.inputs[from.name] ?? call.outputs[from.name];
      if (value !== undefined) inputs[name] = value;
    }
    const options: Record<string, unknown> = {};
    for (const [name, from] of rule.options) {
      const value = this.callOf(match, from).options[from.name];
      if (value !== undefined) options[name] = value;
    }
    try {
      return this.context.record(rule.into, inputs, options);
    } catch (error) {
      return (error as Error).message;
    }
  }
}

const placesBetween = (first: number, last: number): number[] =>
  Array.from({ length: last - first - 1 }, (_, i) => first + 1 + i);

const writesOnly = (node: GraphNode): GraphNode => ({ ...node, accesses: { ...node.accesses, reads: [] } });

/** No call of the rule made the tensor: there is nothing to report. */
const NO_PAIR = "";

/** Whether a unit cannot be moved past a later one. */
function conflict(earlier: Unit, later: Unit): boolean {
  return some(earlier, ({ reads, writes }) =>
    some(
      later,
      (others) =>
        writes.some((range) => touches(others.reads, range) || touches(others.writes, range)) ||
        reads.some((range) => touches(others.writes, range)),
    ),
  );
}

function unitsOf(nodes: readonly GraphNode[]): Unit[] {
  const units: { call: OpCall | undefined; nodes: GraphNode[] }[] = [];
  for (const node of nodes) {
    const last = units.at(-1);
    if (node.call && last?.call === node.call) last.nodes.push(node);
    else units.push({ call: node.call, nodes: [node] });
  }
  return units;
}

/** The dispatches after all rules have been applied, how many calls became part of another, and why others did not. */
export function fuse(nodes: readonly GraphNode[], rules: readonly Fusion[], context: FuseContext) {
  const fuser = new Fuser(nodes, rules, context);
  fuser.run();
  return { nodes: fuser.nodes, fused: fuser.fused, refusals: [...fuser.refusals.values()] };
}
