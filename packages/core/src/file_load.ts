import type { FileOptions } from "./api.ts";
import { wrongKind } from "./errors.ts";
import { type NativeDevice, type NativeMemory, native } from "./native.ts";
import { checkCallback, checkOptionNames } from "./options.ts";
import { checkSignal } from "./signal.ts";

/** A checked copy of the options; throws the reason of an aborted signal. */
export function readFileOptions(op: string, options: FileOptions): FileOptions {
  checkOptionNames<FileOptions>(op, options, { map: true, onProgress: true, signal: true });
  const { map = true, onProgress, signal } = options;
  if (typeof map !== "boolean") throw wrongKind(op, "map", "be a boolean", map);
  checkCallback(op, "onProgress", onProgress);
  checkSignal(op, signal);
  return { map, onProgress, signal };
}

/**
 * Makes the process say in one line why it ends when it uses a mapped file that has become shorter: on standard error, before
 * SIGBUS ends it as it does otherwise. For programs; libraries leave signals alone.
 */
export function explainTruncatedFiles(): void {
  native().explainTruncatedFiles();
}

/**
 * Copies a file into memory of a device, off the JavaScript thread. `onProgress` is called while
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
