import { checkOptionNames, type Dtype, type OptionNames } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";

export interface StateOptions {
  /** Tokens that each sequence has room for. Default: the model's context length. */
  capacity?: number;
  /** Sequences side by side. Default 1. */
  sequences?: number;
  /** The most tokens that `rollback` can take back, at most `model.maxRollback`. Default 0, which costs nothing. */
  rollback?: number;
}

const STATE_OPTIONS: OptionNames<StateOptions> = { capacity: true, sequences: true, rollback: true };

/** The sizes of a state: its options, all of them given. */
export type StateSizes = Required<StateOptions>;

/** The options of `model.newState`, checked and complete. */
export function checkStateOptions(
  options: StateOptions,
  contextLength: number,
  maxRollback: number,
  op = "model.newState",
): StateSizes {
  checkOptionNames(op, options, STATE_OPTIONS);
  const { capacity = contextLength, sequences = 1, rollback = 0 } = options;
  checkInteger(op, "capacity", capacity, 1);
  checkInteger(op, "sequences", sequences, 1);
  checkInteger(op, "rollback", rollback, 0, maxRollback);
  return { capacity, sequences, rollback };
}

/** One tensor of a state; its first axis counts sequences. */
export interface StateSpec {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
  /**
   * `fixed`: a recurrent state, of one size for any number of tokens. `cache`: one row for each token along the second-last
   * axis. `log`: what a rollback needs to know of the last pass; it is neither saved nor restored.
   */
  kind: "fixed" | "cache" | "log";
  /**
   * For a fixed tensor [sequences, rows, ...]: how many rows at its end later tokens depend on. Default: all. The rows
   * before them are kept for a rollback only.
   */
  tail?: number | undefined;
}
