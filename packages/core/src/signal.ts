import { wrongKind } from "./errors.ts";

/** Refuses what is no AbortSignal, and throws the reason of one that has been aborted. */
export function checkSignal(op: string, signal: AbortSignal | undefined): void {
  if (signal === undefined) return;
  if (typeof signal?.throwIfAborted !== "function" || typeof signal.addEventListener !== "function")
    throw wrongKind(op, "signal", "be an AbortSignal", signal);
  signal.throwIfAborted();
}

/** Settles as the promise does, or rejects with the signal's reason when it is aborted before. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    const settled = <A>(settle: (value: A) => void) => {
      return (value: A) => {
        signal.removeEventListener("abort", onAbort);
        settle(value);
      };
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    promise.then(settled(resolve), settled(reject));
  });
}
