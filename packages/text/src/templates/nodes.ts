// The tree of a parsed template. Each node knows its line.
import type { Value } from "./values.ts";

export type UnaryOperator = "-" | "+" | "not";
export type BinaryOperator = "+" | "-" | "*" | "/" | "//" | "%" | "**";
export type Comparison = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

export interface Arguments {
  readonly positional: readonly Expression[];
  readonly keywords: readonly { readonly name: string; readonly value: Expression }[];
  /** `*list` and `**dict` */
  readonly list: Expression | undefined;
  readonly dict: Expression | undefined;
}

interface At {
  readonly line: number;
}
export interface NameNode extends At {
  readonly type: "name";
  readonly name: string;
}
/** `namespace.attribute` where it is assigned. */
export interface AttributeTarget extends At {
  readonly type: "attributeTarget";
  readonly name: string;
  readonly attribute: string;
}
export interface TupleTarget extends At {
  readonly type: "tupleTarget";
  readonly items: readonly Target[];
}
export type Target = NameNode | AttributeTarget | TupleTarget;

export interface CallNode extends At {
  readonly type: "call";
  readonly callee: Expression;
  readonly args: Arguments;
}
/** `value | name(…)`; without a value in `{% filter %}` and `{% set x | … %}`. */
export interface FilterNode extends At {
  readonly type: "filter";
  readonly value: Expression | undefined;
  readonly name: string;
  readonly args: Arguments;
}

export type Expression =
  | (At & { readonly type: "constant"; readonly value: Value })
  | NameNode
  | (At & { readonly type: "list" | "tuple" | "concat"; readonly items: readonly Expression[] })
  | (At & { readonly type: "dict"; readonly entries: readonly { key: Expression; value: Expression }[] })
  | (At & { readonly type: "unary"; readonly operator: UnaryOperator; readonly operand: Expression })
  | (At & {
      readonly type: "binary";
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    })
  | (At & {
      readonly type: "logic";
      readonly operator: "and" | "or";
      readonly left: Expression;
      readonly right: Expression;
    })
  | (At & {
      readonly type: "compare";
      readonly first: Expression;
      readonly rest: readonly { operator: Comparison; operand: Expression }[];
    })
  | (At & {
      readonly type: "conditional";
      readonly test: Expression;
      readonly chosen: Expression;
      readonly otherwise: Expression | undefined;
    })
  | (At & { readonly type: "attribute"; readonly object: Expression; readonly name: string })
  | (At & { readonly type: "item"; readonly object: Expression; readonly key: Expression })
  | (At & {
      readonly type: "slice";
      readonly object: Expression;
      readonly bounds: readonly (Expression | undefined)[];
    })
  | CallNode
  | FilterNode
  | (At & { readonly type: "test"; readonly value: Expression; readonly name: string; readonly args: Arguments });

export interface ForNode extends At {
  readonly type: "for";
  readonly target: Target;
  readonly iterable: Expression;
  readonly test: Expression | undefined;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
  readonly recursive: boolean;
}
export interface IfNode extends At {
  readonly type: "if";
  readonly branches: readonly { readonly test: Expression; readonly body: readonly Statement[] }[];
  readonly otherwise: readonly Statement[];
}
/** What macros and the bodies of `{% call %}` have in common. */
export interface MacroParts extends At {
  readonly parameters: readonly NameNode[];
  /** Default values of the last parameters. */
  readonly defaults: readonly Expression[];
  readonly body: readonly Statement[];
}
export interface MacroNode extends MacroParts {
  readonly type: "macro";
  readonly name: string;
}
export interface CallBlockNode extends MacroParts {
  readonly type: "callBlock";
  /** Undefined for `{% generation %}`, which renders its body. */
  readonly call: CallNode | undefined;
}
export interface SetBlockNode extends At {
  readonly type: "setBlock";
  readonly target: Target;
  readonly filter: FilterNode | undefined;
  readonly body: readonly Statement[];
}
export interface WithNode extends At {
  readonly type: "with";
  readonly assignments: readonly { readonly target: Target; readonly value: Expression }[];
  readonly body: readonly Statement[];
}
export interface FilterBlockNode extends At {
  readonly type: "filterBlock";
  readonly filter: FilterNode;
  readonly body: readonly Statement[];
}

export type Statement =
  | (At & { readonly type: "data"; readonly text: string })
  | (At & { readonly type: "print"; readonly value: Expression })
  | (At & { readonly type: "set"; readonly target: Target; readonly value: Expression })
  | (At & { readonly type: "break" | "continue" })
  | ForNode
  | IfNode
  | MacroNode
  | CallBlockNode
  | SetBlockNode
  | WithNode
  | FilterBlockNode;
