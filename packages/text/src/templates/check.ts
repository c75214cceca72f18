// What jinja2 refuses before a template runs, though it could be parsed.
import { Fault } from "./faults.ts";
import type { CallBlockNode, Expression, FilterNode, Statement, Target } from "./nodes.ts";
import { eachOperand } from "./symbols.ts";

interface Names {
  has(name: string): boolean;
}

/**
 * Refuses filters and tests that are not there, `break` outside of loops and assignments to `loop` within loops. A filter
 * in a branch of an `if` may be missing until the branch runs.
 */
export function check(statements: readonly Statement[], filters: Names, tests: Names): void {
  const expression = (node: Expression | undefined, soft: boolean): void => {
    if (!node) return;
    const names = node.type === "filter" ? filters : node.type === "test" ? tests : undefined;
    if (names && !soft && !names.has((node as FilterNode).name))
      throw new Fault("syntax", `No ${node.type} named '${(node as FilterNode).name}'.`, node.line);
    eachOperand(node, (operand) => expression(operand, soft || node.type === "conditional"));
  };
  const target = (node: Target, inFor: boolean): void => {
    if (node.type === "tupleTarget") for (const item of node.items) target(item, inFor);
    else if (node.type === "name" && node.name === "loop" && inFor)
      throw new Fault("syntax", "Can't assign to special loop variable in for-loop target", node.line);
  };
  /** `loop`: whether `break` may stand here; `inFor`: whether a loop is around, also outside of a macro. */
  const all = (nodes: readonly Statement[], soft: boolean, loop: boolean, inFor: boolean): void => {
    for (const node of nodes) one(node, soft, loop, inFor);
  };
  const parts = (
    node: Exclude<Statement, { type: "data" }> & { defaults: readonly Expression[] },
    inFor: boolean,
  ): void => {
    const { parameters, defaults, body } = node as CallBlockNode;
    for (const parameter of parameters) target(parameter, inFor);
    for (const value of defaults) expression(value, false);
    all(body, false, false, inFor);
  };
  const one = (node: Statement, soft: boolean, loop: boolean, inFor: boolean): void => {
    switch (node.type) {
      case "print":
        expression(node.value, soft);
        return;
      case "set":
        target(node.target, inFor);
        expression(node.value, soft);
        return;
      case "setBlock":
        target(node.target, inFor);
        expression(node.filter, false);
        all(node.body, false, loop, inFor);
        return;
      case "if":
        for (const { test, body } of node.branches) {
          expression(test, true);
          all(body, true, loop, inFor);
        }
        all(node.otherwise, true, loop, inFor);
        return;
      case "for":
        target(node.target, true);
        expression(node.iterable, soft);
        expression(node.test, false);
        all(node.body, false, true, true);
        all(node.otherwise, false, loop && !node.recursive, true);
        return;
      case "macro":
        parts(node, inFor);
        return;
      case "callBlock":
        parts(node, inFor);
        expression(node.call, soft);
        return;
      case "with":
        for (const each of node.assignments) {
          target(each.target, inFor);
          expression(each.value, soft);
        }
        all(node.body, false, loop, inFor);
        return;
      case "filterBlock":
        expression(node.filter, false);
        all(node.body, false, loop, inFor);
        return;
      case "break":
      case "continue":
        if (!loop) throw new Fault("syntax", `'${node.type}' outside loop`, node.line);
    }
  };
  all(statements, false, false, false);
}
