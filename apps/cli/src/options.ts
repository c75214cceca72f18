import { InvalidArgumentError } from "commander";

/** A command has failed and said why; only the exit code is left. */
export class Reported extends Error {}

/** Parsers of option values, with commander's own message for a bad one. */
export function integer(min: number, max = Number.MAX_SAFE_INTEGER) {
  return (text: string): number => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isInteger(value) || value < min || value > max)
      throw new InvalidArgumentError(
        `must be an integer from ${min}${max === Number.MAX_SAFE_INTEGER ? "" : ` to ${max}`}.`,
      );
    return value;
  };
}

export function number(min: number, max = Number.POSITIVE_INFINITY) {
  return (text: string): number => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value) || value < min || value > max)
      throw new InvalidArgumentError(
        `must be a number from ${min}${max === Number.POSITIVE_INFINITY ? "" : ` to ${max}`}.`,
      );
    return value;
  };
}

/** Token ids, separated by commas. */
export function tokenIds(text: string): number[] {
  const ids = text.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  if (!ids.every((id) => Number.isSafeInteger(id)))
    throw new InvalidArgumentError("must be integers separated by commas.");
  return ids;
}
