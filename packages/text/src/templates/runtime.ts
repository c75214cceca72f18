import type { Budget } from "./budget.ts";
import type { Args, Value } from "./values.ts";

/** What filters and tests need of a rendering. */
export interface Runtime {
  readonly budget: Budget;
  filter(name: string, value: Value, args: Args): Value;
  test(name: string, value: Value, args: Args): boolean;
}

export type Filter = (runtime: Runtime, value: Value, args: Args) => Value;
export type Test = (runtime: Runtime, value: Value, args: Args) => boolean;
