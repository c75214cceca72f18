import { checkOptionNames, checkSignal } from "@mlxts/core";

/** Options of calls that take no others. */
export interface CallOptions {
  /** Cancels the call: it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** The signal of a call that has no other options. */
export function signalOf(op: string, options: CallOptions): AbortSignal | undefined {
  checkOptionNames(op, options, { signal: true });
  checkSignal(op, options.signal);
  return options.signal;
}
