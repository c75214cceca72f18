import { type Node, type Pattern, PatternError, type Position } from "./ast.ts";
import { CharTest } from "./char_test.ts";

/** A step of the backtracking matcher; `next` are indices of instructions. */
export type Instruction =
  | { op: "char"; codePoint: number }
  | { op: "set"; test: CharTest }
  /** As many characters of a set as there are, fewer when what follows fails (not if `possessive`). */
  | { op: "run"; test: CharTest; min: number; max: number; possessive: boolean }
  | { op: "split"; first: number; second: number }
  | { op: "jump"; next: number }
  | { op: "save"; slot: number }
  /** Remembers where a turn of a loop begins; `progress` leaves the loop after a turn that matched nothing. */
  | { op: "mark"; slot: number }
  | { op: "progress"; slot: number }
  | { op: "position"; at: Position }
  | { op: "backreference"; indices: readonly number[]; folds: boolean }
  /** Runs the instructions that follow up to `done`, without returning into them, then goes on at `next`. */
  | { op: "atomic"; next: number }
  | { op: "look"; behind: boolean; negated: boolean; longest: number; next: number }
  | { op: "done" };

export interface Program {
  instructions: readonly Instruction[];
  /** Two for each capture, and one for each loop. */
  slots: number;
}

const MAX_INSTRUCTIONS = 1 << 14;

export function compile({ root, captures }: Pattern): Program {
  const compiler = new Compiler(2 * (captures + 1));
  compiler.node(root);
  compiler.add({ op: "done" });
  return { instructions: compiler.instructions, slots: compiler.slots };
}

class Compiler {
  readonly instructions: Instruction[] = [];
  slots: number;

  constructor(slots: number) {
    this.slots = slots;
  }

  add<T extends Instruction>(instruction: T): T {
    if (this.instructions.length >= MAX_INSTRUCTIONS) throw new PatternError("counts make it too large");
    this.instructions.push(instruction);
    return instruction;
  }

  get here(): number {
    return this.instructions.length;
  }

  node(node: Node): void {
    switch (node.kind) {
      case "empty":
        return;
      case "literal":
        this.add({ op: "char", codePoint: node.codePoint });
        return;
      case "set":
        this.add({ op: "set", test: new CharTest(node) });
        return;
      case "sequence":
        for (const part of node.parts) this.node(part);
        return;
      case "choice":
        this.choice(node.choices);
        return;
      case "repeat":
        this.repeat(node);
        return;
      case "capture":
        this.add({ op: "save", slot: 2 * node.index });
        this.node(node.node);
        this.add({ op: "save", slot: 2 * node.index + 1 });
        return;
      case "atomic": {
        const atomic = this.add({ op: "atomic", next: 0 });
        this.node(node.node);
        this.add({ op: "done" });
        atomic.next = this.here;
        return;
      }
      case "look": {
        const { behind, negated } = node;
        const look = this.add({ op: "look", behind, negated, longest: longestOf(node.node), next: 0 });
        this.node(node.node);
        this.add({ op: "done" });
        look.next = this.here;
        return;
      }
      case "backreference":
        this.add({ op: "backreference", indices: node.indices, folds: node.folds });
        return;
      case "position":
        this.add({ op: "position", at: node.at });
        return;
    }
  }

  private choice(choices: readonly Node[]): void {
    const jumps: { next: number }[] = [];
    for (const [index, choice] of choices.entries()) {
      if (index === choices.length - 1) {
        this.node(choice);
        break;
      }
      const split = this.add({ op: "split", first: this.here + 1, second: 0 });
      this.node(choice);
      jumps.push(this.add({ op: "jump", next: 0 }));
      split.second = this.here;
    }
    for (const jump of jumps) jump.next = this.here;
  }

  private repeat({ node, min, max, mode }: Extract<Node, { kind: "repeat" }>): void {
    const single: Node | undefined =
      node.kind === "literal"
        ? { kind: "set", source: `[\\u{${node.codePoint.toString(16)}}]`, negated: false }
        : node.kind === "set"
          ? node
          : undefined;
    if (single?.kind === "set" && mode !== "lazy") {
      this.add({ op: "run", test: new CharTest(single), min, max, possessive: mode === "possessive" });
      return;
    }
    if (mode === "possessive") {
      this.node({ kind: "atomic", node: { kind: "repeat", node, min, max, mode: "greedy" } });
      return;
    }
    for (let count = 0; count < min; count++) {
      const before = this.here;
      this.node(node);
      // Nothing, however often it is repeated.
      if (this.here === before) break;
    }
    if (max === Number.POSITIVE_INFINITY) this.loop(node, mode === "lazy");
    else this.optional(node, max - min, mode === "lazy");
  }

  private loop(node: Node, lazy: boolean): void {
    const slot = this.slots++;
    const split = this.add({ op: "split", first: 0, second: 0 });
    const top = this.here - 1;
    const body = this.here;
    this.add({ op: "mark", slot });
    this.node(node);
    this.add({ op: "progress", slot });
    this.add({ op: "jump", next: top });
    [split.first, split.second] = lazy ? [this.here, body] : [body, this.here];
  }

  private optional(node: Node, count: number, lazy: boolean): void {
    const splits: { first: number; second: number }[] = [];
    for (let turn = 0; turn < count; turn++) {
      splits.push(this.add({ op: "split", first: this.here + 1, second: 0 }));
      this.node(node);
    }
    for (const split of splits) {
      split.second = this.here;
      if (lazy) [split.first, split.second] = [split.second, split.first];
    }
  }
}

/** The most characters that a node matches. */
function longestOf(node: Node): number {
  switch (node.kind) {
    case "literal":
    case "set":
      return 1;
    case "sequence":
      return node.parts.reduce((sum, part) => sum + longestOf(part), 0);
    case "choice":
      return Math.max(...node.choices.map(longestOf));
    case "repeat": {
      const longest = longestOf(node.node);
      return longest === 0 ? 0 : longest * node.max;
    }
    case "capture":
    case "atomic":
      return longestOf(node.node);
    case "backreference":
      return Number.POSITIVE_INFINITY;
    default:
      return 0;
  }
}
