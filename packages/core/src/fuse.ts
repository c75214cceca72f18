// Applies rules of fusion to a recording: which calls become one, and why others cannot.
import { ArgumentRangeError, ArgumentTypeError, MlxtsError } from "./errors.ts";
import { type FuseContext, Fusible, isSame, NO_PAIR } from "./fusible.ts";
import type { Fusion, Step } from "./fusion.ts";
import type { GraphNode, OpCall } from "./graph.ts";
import { Units } from "./units.ts";

/** So many calls of an op that read a tensor are looked at on each side, for those that have the same input. */
const NEIGHBORS = 64;
/** So many calls are tried, in all combinations together, for the calls of a rule whose last one is known. */
const TRIES = 64;

interface Recorder {
  /** The dispatches of a call of the op that results; it makes its own checks and may refuse. */
  record(into: Fusion["into"], inputs: Record<string, unknown>, options: Record<string, unknown>): GraphNode[];
}

/** The search for the calls of a rule that belong to one call. */
interface Search {
  readonly rule: Fusion;
  readonly root: number;
  readonly match: Map<string, number>;
  tries: number;
}

/** Whether an op refused its arguments; all other errors are faults. */
const isRefusal = (error: unknown): error is Error =>
  error instanceof ArgumentTypeError ||
  error instanceof ArgumentRangeError ||
  (error instanceof MlxtsError && (error.code === "UnsupportedDtype" || error.code === "Disposed"));

/** The first elements of a list. */
function* take<T>(list: Iterable<T>, count: number): Iterable<T> {
  let left = count;
  if (left > 0)
    for (const each of list) {
      yield each;
      if (--left === 0) return;
    }
}

class Fuser {
  fused = 0;
  /** Why calls that a rule names stayed as they are, once for each place and rule. */
  readonly refusals = new Map<string, string>();
  readonly units: Units;
  /** Calls for which the op of a rule takes as many dispatches: it is not asked again. */
  private readonly useless = new Map<Fusion, Map<string, string>>();
  private readonly rules: readonly Fusion[];
  private readonly context: FuseContext & Recorder;

  constructor(nodes: readonly GraphNode[], rules: readonly Fusion[], context: FuseContext & Recorder) {
    this.units = new Units(nodes);
    this.rules = rules;
    this.context = context;
  }

  /** Applies the rules, each to the whole recording, until none does anything. */
  run(): void {
    for (let before = -1; before !== this.fused; ) {
      before = this.fused;
      this.refusals.clear();
      for (const rule of this.rules) {
        const [name, op] = rule.calls.at(-1) as [string, string];
        for (let root = 0; root < this.units.length; root++)
          if (this.units.at(root).call?.op === op)
            this.search({ rule, root, match: new Map([[name, root]]), tries: TRIES }, 0);
      }
    }
  }

  /** Finds the calls of a rule from the known ones on and makes them one. */
  private search(search: Search, index: number): boolean {
    const { rule, match } = search;
    const step = rule.steps[index];
    if (!step) return this.apply(search);
    const [, { call }] = step.pairs[0] as Step["pairs"][number];
    const op = rule.calls.find(([name]) => name === call)?.[1] as string;
    const taken = new Set(match.values());
    for (const place of step.by === "link" ? this.producers(step, match) : this.siblings(rule, step, match, op)) {
      if (taken.has(place) || this.units.at(place).call?.op !== op) continue;
      if (search.tries <= 0) return false;
      search.tries--;
      match.set(call, place);
      if (this.search(search, index + 1)) return true;
      match.delete(call);
    }
    return false;
  }

  private callOf(match: ReadonlyMap<string, number>, name: string): OpCall {
    return this.units.at(match.get(name) as number).call as OpCall;
  }

  /** The call that made an input. */
  private *producers({ pairs }: Step, match: ReadonlyMap<string, number>): Iterable<number> {
    for (const [input] of pairs) {
      const tensor = this.callOf(match, input.call).tensors[input.name];
      const place = tensor && this.units.lastWriter(tensor.range, match.get(input.call) as number);
      if (place !== undefined) yield place;
    }
  }

  /** Calls of an op that read the same tensor, the nearest first: those before, then those behind. Nobody writes it between. */
  private *siblings(rule: Fusion, { pairs }: Step, match: ReadonlyMap<string, number>, op: string): Iterable<number> {
    const found = pairs.find(([{ call, name }]) => this.callOf(match, call).tensors[name]);
    if (!found) return;
    const [known, sought] = found;
    const place = match.get(known.call) as number;
    const tensor = this.callOf(match, known.call).tensors[known.name] as NonNullable<OpCall["tensors"][string]>;
    const isSibling = (at: number) => {
      const other = this.units.at(at).call?.tensors[sought.name];
      return other !== undefined && isSame(other, tensor, rule);
    };
    const { range } = tensor;
    // Who writes the tensor may read it too, before that.
    const end = this.units.firstWriter(range, place) ?? this.units.length - 1;
    const begin = this.units.lastWriter(range, place) ?? -1;
    for (const at of take(this.units.before("reads", range, place, op), NEIGHBORS)) {
      if (at <= begin) break;
      if (isSibling(at)) yield at;
    }
    if (end === place) return;
    for (const at of take(this.units.between("reads", range, place, end + 1, op), NEIGHBORS))
      if (isSibling(at)) yield at;
  }

  /** Makes the calls of a match one; else notes why not. */
  private apply(search: Search): boolean {
    const { rule, root, match } = search;
    const { calls, into } = rule;
    const reason = this.whyNot(new Fusible(rule, match, this.units, this.context), search);
    if (reason === undefined) {
      this.fused += calls.length - 1;
      return true;
    }
    const key = `${root} ${calls.join()} ${into.op.name}`;
    if (reason !== NO_PAIR && !this.refusals.has(key))
      this.refusals.set(key, `${calls.map(([, op]) => op).join(" + ")}: ${reason}`);
    return false;
  }

  private uselessOf(rule: Fusion): Map<string, string> {
    const useless = this.useless.get(rule) ?? new Map<string, string>();
    this.useless.set(rule, useless);
    return useless;
  }

  /** Puts the op that results in the place of the calls, or tells why it cannot stand there. */
  private whyNot(fusible: Fusible, search: Search): string | undefined {
    const reason = fusible.whyNot();
    if (reason !== undefined) return reason;
    const place = fusible.place();
    if (typeof place === "string") return place;
    const inputs = fusible.inputs();
    if (typeof inputs === "string") return inputs;
    const useless = this.uselessOf(search.rule);
    const known = useless.get(fusible.text);
    if (known !== undefined) {
      search.tries = 0;
      return known;
    }
    let nodes: GraphNode[];
    try {
      nodes = this.context.record(fusible.into, inputs, fusible.options());
    } catch (error) {
      if (isRefusal(error)) return error.message;
      throw error;
    }
    if (nodes.length >= fusible.dispatches) {
      // Other calls with the same input would not change that.
      const reason = `${fusible.into.op.name} takes as many dispatches: ${nodes.length}`;
      useless.set(fusible.text, reason);
      search.tries = 0;
      return reason;
    }
    const call = nodes[0]?.call;
    const isOne = nodes.every((node) => node.call === call) && call?.descriptor === fusible.into.op;
    this.units.replace(fusible.places, place, { call: isOne ? call : undefined, nodes });
    return undefined;
  }
}

/** The dispatches after all rules have been applied, how many calls became part of another, and why others did not. */
export function fuse(nodes: readonly GraphNode[], rules: readonly Fusion[], context: FuseContext & Recorder) {
  const fuser = new Fuser(nodes, rules, context);
  fuser.run();
  return { nodes: fuser.units.nodes, fused: fuser.fused, refusals: [...fuser.refusals.values()] };
}
