import { wrongKind } from "./errors.ts";

function isSignal(value: Partial<AbortSignal> | null): boolean {
  try {
    return typeof value?.throwIfAborted === "function" && typeof value.addEventListener === "function";
  } catch {
    // A revoked Proxy, or a getter of the value's own.
    return false;
  }
}

/** Refuses what is no AbortSignal, and throws the reason of an aborted one. To be called before anything is changed. */
export function checkSignal(op: string, signal: AbortSignal | undefined): void {
  if (signal === undefined) return;
  if (!isSignal(signal)) throw wrongKind(op, "signal", "be an AbortSignal", signal);
  signal.throwIfAborted();
}

/** Settles as the promise does, or rejects with the signal's reason when the signal is aborted first. */
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
