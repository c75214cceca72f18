import { checkOptionNames, type Dtype, type OptionNames, wrongValue } from "@mlxts/core";

export interface StateOptions {
  /** Tokens that each sequence has room for. Default: the model's context length. */
  capacity?: number;
  /** Sequences side by side. Default 1. */
  sequences?: number;
  /** The most tokens that `rollback` can take back, up to 64. Default 0, which costs nothing. */
  rollback?: number;
}

const STATE_OPTIONS: OptionNames<StateOptions> = { capacity: true, sequences: true, rollback: true };

/** The options of `model.newState`, checked and complete. */
export function checkStateOptions(options: StateOptions, contextLength: number, mostRollback: number) {
  const op = "model.newState";
  checkOptionNames(op, options, STATE_OPTIONS);
  const { capacity = contextLength, sequences = 1, rollback = 0 } = options;
  checkInteger(op, "capacity", capacity, 1);
  checkInteger(op, "sequences", sequences, 1);
  checkInteger(op, "rollback", rollback, 0, mostRollback);
  return { capacity, sequences, rollback };
}

/** A tensor of a state, sequences along its first axis. */
export interface StateSpec {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
  /**
   * `fixed`: what a sequence's tokens add up to. `cache`: one row for each token along the second-last axis. `log`: what
   * a rollback needs of the last pass.
   */
  kind: "fixed" | "cache" | "log";
  /** Of a fixed tensor only the last so many rows of the second axis count; default: all. */
  tail?: number | undefined;
}

/** `value` if it is an integer from `min` to `max`. */
export function checkInteger(op: string, argument: string, value: unknown, min: number, max = Infinity): number {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    const rule = max === Infinity ? `be an integer ≥ ${min}` : `be an integer from ${min} to ${max}`;
    throw wrongValue(op, argument, rule, value);
  }
  return value as number;
}
