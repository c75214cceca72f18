// Values of JavaScript as values of a template.
import type { Budget } from "./budget.ts";
import { Fault } from "./faults.ts";
import { integer } from "./numbers.ts";
import { Dict, Float, orElse, type Value } from "./values.ts";

/** Integers beyond this are written with an exponent in JavaScript: they are taken for floats. */
const LARGEST_INTEGER = 1e21;

function numberValue(value: number): Value {
  if (Number.isSafeInteger(value) && !Object.is(value, -0)) return value;
  if (Number.isInteger(value) && value !== 0 && Math.abs(value) < LARGEST_INTEGER) return BigInt(value);
  return new Float(value);
}

/**
 * A value of a message or variable. Objects and Maps become dicts, arrays lists, whole numbers integers; fields that are
 * undefined or functions are left out, as in JSON.
 */
export function templateValue(budget: Budget, value: unknown): Value | undefined {
  budget.work(1);
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return numberValue(value);
    case "bigint":
      return integer(value);
    case "object":
      break;
    default:
      return undefined;
  }
  if (value === null) return null;
  budget.enter();
  let result: Value | undefined;
  if (Array.isArray(value)) {
    budget.work(value.length);
    result = Array.from(value, (item) => orElse(templateValue(budget, item), () => null));
  } else if (value instanceof Map) result = dictOf(budget, value);
  else if (typeof (value as { toJSON?: unknown }).toJSON === "function")
    result = templateValue(budget, (value as { toJSON(): unknown }).toJSON());
  else result = dictOf(budget, Object.entries(value));
  budget.leave();
  return result;
}

function dictOf(budget: Budget, entries: Iterable<readonly [unknown, unknown]>): Dict {
  const dict = new Dict();
  for (const [key, item] of entries) {
    const [name, value] = [templateValue(budget, key), templateValue(budget, item)];
    if (value === undefined) continue;
    if (name === undefined || (typeof name === "object" && name !== null && !(name instanceof Float)))
      throw new Fault("type", "a Map among the variables has a key that is neither a text nor a number");
    dict.set(name, value);
  }
  return dict;
}
