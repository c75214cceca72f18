import { markAsUntransferable } from "node:worker_threads";

type Newer = ArrayBuffer & { transfer?(): ArrayBuffer };

/** Whether a plain ArrayBuffer can be wrapped: Node.js 22 transfers even one that is marked as untransferable. */
export const pinned = (() => {
  const probe = new ArrayBuffer(1) as Newer;
  markAsUntransferable(probe);
  try {
    probe.transfer?.();
  } catch {
    // Refused, as it should be.
  }
  return probe.byteLength === 1;
})();

/** The array, or a copy in a SharedArrayBuffer where a plain ArrayBuffer is refused. */
export function wrappable<A extends Uint8Array | Uint32Array>(array: A): A {
  if (pinned) return array;
  const copy = new (array.constructor as new (buffer: SharedArrayBuffer) => A)(new SharedArrayBuffer(array.byteLength));
  copy.set(array);
  return copy;
}
