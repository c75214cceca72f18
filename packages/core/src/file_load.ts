import type { FileOptions } from "./api.ts";
import { type NativeDevice, type NativeMemory, native } from "./native.ts";
import { checkCallback, checkOptionNames } from "./options.ts";
import { checkSignal } from "./signal.ts";

/** A checked copy of the options; throws the reason of an aborted signal. */
export function readFileOptions(op: string, options: FileOptions): FileOptions {
  checkOptionNames<FileOptions>(op, options, { onProgress: true, signal: true });
  const { onProgress, signal } = options;
  checkCallback(op, "onProgress", onProgress);
  checkSignal(op, signal);
  return { onProgress, signal };
}

/**
 * Copies a file into memory of a device that reaches no mapped file, off the JavaScript thread. `onProgress` is called while
 * bytes are still to come. When the promise rejects, nothing of the load is left.
 */
export async function loadFile(
  device: NativeDevice,
  path: string,
  byteLength: number,
  { onProgress, signal }: FileOptions,
): Promise<NativeMemory> {
  let moved = false;
  let wake: (() => void) | undefined;
  const load = native().loadFile(device, path, byteLength, () => {
    moved = true;
    wake?.();
  });
  let stopped: { readonly reason: unknown } | undefined;
  const stop = (reason: unknown) => {
    stopped ??= { reason };
    native().stopLoad(load);
  };
  const onAbort = () => stop(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    for (;;) {
      if (!moved)
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      moved = false;
      const { loaded, ended, memory } = native().loadState(device, load);
      if (memory && !stopped) return memory;
      if (memory) native().releaseMemory(memory);
      if (ended) throw stopped?.reason;
      try {
        if (!stopped && loaded < byteLength) onProgress?.(loaded, byteLength);
      } catch (error) {
        stop(error);
      }
    }
  } catch (error) {
    throw stopped ? stopped.reason : error;
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}
