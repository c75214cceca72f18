/** A set of characters: `source` is a class for a RegExp with the flag `v`, `folded` one for the flags `vi`. */
export interface CharSet {
  kind: "set";
  source: string;
  /** Characters and ranges under `(?i)`, which match by their folded form. */
  folded?: string;
  /** What is folded and what is not are intersected with further sets. */
  and?: readonly CharSet[];
  negated: boolean;
}

export type Position =
  | "lineStart"
  | "lineEnd"
  | "textStart"
  | "textEnd"
  | "lastLineEnd"
  | "searchStart"
  | "wordBoundary"
  | "noWordBoundary";

/** A regular expression in Oniguruma's syntax. */
export type Node =
  | CharSet
  | { kind: "empty" }
  | { kind: "literal"; codePoint: number }
  | { kind: "sequence"; parts: readonly Node[] }
  | { kind: "choice"; choices: readonly Node[] }
  | { kind: "repeat"; node: Node; min: number; max: number; mode: "greedy" | "lazy" | "possessive" }
  | { kind: "capture"; index: number; node: Node }
  | { kind: "atomic"; node: Node }
  | { kind: "look"; node: Node; behind: boolean; negated: boolean }
  | { kind: "backreference"; indices: readonly number[]; folds: boolean }
  | { kind: "position"; at: Position };

export interface Pattern {
  root: Node;
  captures: number;
}

/** A pattern that is malformed, or uses what is not supported: the message says which. */
export class PatternError extends Error {}
