// ArrayBuffers that a device shares with the program: their views, and what keeps or takes their bytes.
import { types } from "node:util";
import { markAsUntransferable } from "node:worker_threads";
import { wrongKind, wrongValue } from "./errors.ts";
import { native } from "./native.ts";

/** A view's bytes. Each of its properties is read once: a subclass could name another place each time. */
export function bytesOfView(op: string, argument: string, view: ArrayBufferView, source = view.buffer): Uint8Array {
  try {
    return new Uint8Array(source, view.byteOffset, view.byteLength);
  } catch {
    throw wrongValue(op, argument, "show bytes of its ArrayBuffer", "a view of bytes that are gone");
  }
}

const resizable = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "resizable")?.get;

/** Whether an ArrayBuffer is resizable, asked of the built-in getter: the object may have a property of that name. */
const isResizable = (buffer: ArrayBuffer): boolean => resizable?.call(buffer) === true;

/** The bytes of an array that a device is to use in place, and the ArrayBuffer that holds them. */
export function arrayToWrap(op: string, memory: ArrayBufferView): { view: Uint8Array; source: ArrayBufferLike } {
  if (!ArrayBuffer.isView(memory)) throw wrongKind(op, "memory", "be a typed array or DataView", memory);
  const source = memory.buffer;
  if (!types.isAnyArrayBuffer(source))
    throw wrongKind(op, "memory", "lie in an ArrayBuffer or SharedArrayBuffer", source);
  if (types.isArrayBuffer(source) && isResizable(source))
    throw wrongValue(op, "memory", "have a fixed length", "a view of a resizable ArrayBuffer");
  const view = bytesOfView(op, "memory", memory, source);
  if (view.length === 0) throw wrongValue(op, "memory", "have at least one byte", "0 bytes");
  return { view, source };
}

/**
 * Whether `markAsUntransferable` keeps JavaScript from taking an ArrayBuffer's bytes away. On Node.js 21 to 23 and early
 * versions of 24 it does not: `transfer(length)` moves them, also while a device works on them.
 */
export const canPin: boolean = (() => {
  const probe = new ArrayBuffer(1) as ArrayBuffer & { transfer?(): ArrayBuffer };
  markAsUntransferable(probe);
  try {
    probe.transfer?.();
  } catch {
    // Refused, as it should be.
  }
  return probe.byteLength === 1;
})();

/** Node.js 20 lacks it. */
const { transfer } = ArrayBuffer.prototype as { transfer?: (this: ArrayBuffer, byteLength: number) => ArrayBuffer };

/** Empties an ArrayBuffer over a device's memory, whose views would otherwise go on showing that memory. */
export function detach(borrowed: ArrayBuffer): void {
  try {
    // From Node.js 24 on, N-API ends the process when the array was marked as untransferable; `transfer` throws.
    if (transfer) transfer.call(borrowed, 0);
    else native().detach(borrowed);
  } catch {
    // The views stay, and keep the memory that they show.
  }
}
