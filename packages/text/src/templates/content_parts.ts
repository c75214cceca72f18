import type { Expression, Statement, Target } from "./nodes.ts";
import { eachOperand } from "./symbols.ts";

/** Whether an expression is the content of a message, or a part of it; `names` hold one. */
function isContent(node: Expression, names: ReadonlySet<string>): boolean {
  switch (node.type) {
    case "name":
      return names.has(node.name);
    case "attribute":
      return node.name === "content";
    case "item":
      return node.key.type === "constant" && node.key.value === "content";
    case "filter":
      return node.value !== undefined && isContent(node.value, names);
    case "slice":
      return isContent(node.object, names);
    default: {
      let found = false;
      if (node.type === "conditional" || node.type === "logic")
        eachOperand(node, (operand) => {
          found ||= isContent(operand, names);
        });
      return found;
    }
  }
}

/** Whether a template has a loop over the content of messages: it takes parts, as `[{ type: "text", text: "…" }]`. */
export function loopsOverContent(statements: readonly Statement[]): boolean {
  const names = new Set(["content"]);
  const assign = (target: Target, value: Expression) => {
    if (target.type === "name" && isContent(value, names)) names.add(target.name);
  };
  const any = (nodes: readonly Statement[]): boolean => nodes.some(one);
  const one = (node: Statement): boolean => {
    switch (node.type) {
      case "set":
        assign(node.target, node.value);
        return false;
      case "for":
        return isContent(node.iterable, names) || any(node.body) || any(node.otherwise);
      case "if":
        return node.branches.some(({ body }) => any(body)) || any(node.otherwise);
      case "with":
        for (const { target, value } of node.assignments) assign(target, value);
        return any(node.body);
      case "macro":
      case "callBlock":
      case "setBlock":
      case "filterBlock":
        return any(node.body);
      default:
        return false;
    }
  };
  return any(statements);
}
