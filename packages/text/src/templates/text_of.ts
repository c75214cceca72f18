// `str` and `repr` of values.
import type { Budget } from "./budget.ts";
import { textRepr } from "./characters.ts";
import { unsupported } from "./faults.ts";
import { floatRepr } from "./numbers.ts";
import {
  Dict,
  DictView,
  Float,
  isList,
  Markup,
  Namespace,
  Native,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** `str(value)` */
export function textOf(budget: Budget, value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Undefined) return "";
  if (value instanceof Markup) return value.text;
  return reprOf(budget, value);
}

/** `repr(value)` */
export function reprOf(budget: Budget, value: Value): string {
  const parts: string[] = [];
  write(budget, value, parts);
  return parts.length === 1 ? (parts[0] as string) : parts.join("");
}

function write(budget: Budget, value: Value, parts: string[]): void {
  const text = plainRepr(value);
  if (text !== undefined) {
    budget.make(text.length);
    budget.work(1);
    parts.push(text);
    return;
  }
  budget.enter();
  const writeAll = (items: Iterable<Value>, open: string, close: string) => {
    parts.push(open);
    let count = 0;
    for (const item of items) {
      if (count++ > 0) parts.push(", ");
      budget.make(2);
      write(budget, item, parts);
    }
    parts.push(count === 1 && close === ")" && open === "(" ? ",)" : close);
  };
  const writeEntries = (entries: Iterable<readonly [Value, Value]>) => {
    parts.push("{");
    let isFirst = true;
    for (const [key, item] of entries) {
      if (!isFirst) parts.push(", ");
      isFirst = false;
      budget.make(4);
      write(budget, key, parts);
      parts.push(": ");
      write(budget, item, parts);
    }
    parts.push("}");
  };
  if (isList(value)) writeAll(value, "[", "]");
  else if (value instanceof Tuple) writeAll(value.items, "(", ")");
  else if (value instanceof Dict) writeEntries(value.entries());
  else if (value instanceof DictView) writeAll(value, `dict_${value.part}([`, "])");
  else if (value instanceof Namespace) {
    parts.push("<Namespace ");
    writeEntries(value.attributes);
    parts.push(">");
  } else throw unsupported(`printing a ${typeName(value)}, which in Python has an address,`);
  budget.leave();
}

/** `repr` of values that hold no others. */
function plainRepr(value: Value): string | undefined {
  switch (typeof value) {
    case "string":
      return textRepr(value);
    case "number":
      return String(value);
    case "boolean":
      return value ? "True" : "False";
    case "bigint":
      return String(value);
  }
  if (value === null) return "None";
  if (value instanceof Float) return floatRepr(value.value);
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Markup) return `Markup(${textRepr(value.text)})`;
  if (value instanceof Range) return `range(${value.start}, ${value.stop}${value.step === 1 ? "" : `, ${value.step}`})`;
  return value instanceof Native ? value.repr() : undefined;
}
