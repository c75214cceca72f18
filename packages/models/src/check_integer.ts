import { wrongValue } from "@mlxts/core";

/** `value` if it is an integer from `min` to `max`. */
export function checkInteger(op: string, argument: string, value: unknown, min: number, max = Infinity): number {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    const rule = max === Infinity ? `be an integer ≥ ${min}` : `be an integer from ${min} to ${max}`;
    throw wrongValue(op, argument, rule, value);
  }
  return value as number;
}
