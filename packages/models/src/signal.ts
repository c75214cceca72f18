import { checkOptionNames, wrongKind } from "@mlxts/core";

/** Options of calls that take no others. */
export interface CallOptions {
  /** Cancels the call: it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Refuses what is not an AbortSignal, and throws the reason of one that has been aborted. */
export function checkSignal(op: string, signal: AbortSignal | undefined): void {
  if (signal === undefined) return;
  if (typeof signal?.throwIfAborted !== "function") throw wrongKind(op, "signal", "be an AbortSignal", signal);
  signal.throwIfAborted();
}

/** The signal of a call that has no other options. */
export function signalOf(op: string, options: CallOptions): AbortSignal | undefined {
  checkOptionNames(op, options, { signal: true });
  checkSignal(op, options.signal);
  return options.signal;
}
