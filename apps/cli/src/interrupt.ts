/** A command was ended by a signal or by the reader of its output. */
export class Interrupted extends Error {
  readonly exitCode: number;

  constructor(by: string, exitCode: number) {
    super(`interrupted by ${by}`);
    this.exitCode = exitCode;
  }
}

/** Signals that end a command, and the exit codes that shells expect of them: 128 and the number of the signal. */
const EXIT_CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

/**
 * Runs a command with an `AbortSignal`. The first SIGINT, SIGTERM or SIGHUP aborts it, and so does the end of the reader of
 * the output (exit code 0). A second signal ends the process at once, after its listeners of `exit`.
 */
export async function interruptible<T>(run: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
  const controller = new AbortController();
  const listeners = Object.entries(EXIT_CODES).map(([name, exitCode]) => {
    const listener = () => {
      if (controller.signal.aborted) process.exit(exitCode);
      controller.abort(new Interrupted(name, exitCode));
    };
    process.on(name, listener);
    return () => process.off(name, listener);
  });
  const onWriteError = (error: NodeJS.ErrnoException) =>
    controller.abort(
      error.code === "EPIPE" ? new Interrupted("its reader", 0) : new Error(`cannot write: ${error.message}`),
    );
  const streams = [process.stdout, process.stderr];
  for (const stream of streams) {
    stream.on("error", onWriteError);
    // Writing the last message may fail too.
    if (!stream.listeners("error").includes(ignore)) stream.on("error", ignore);
  }
  try {
    const result = await run(controller.signal);
    await flushed();
    controller.signal.throwIfAborted();
    return result;
  } catch (error) {
    throw controller.signal.aborted ? controller.signal.reason : error;
  } finally {
    for (const remove of listeners) remove();
    for (const stream of streams) stream.off("error", onWriteError);
  }
}

/** What a command that cannot stop its work at once may take after an interrupt. */
const LAST_MS = 500;

/**
 * Lets the process end half a second after `signal`, whatever still runs: for measurements, which leave nothing but what
 * listeners of `exit` remove.
 */
export function endSoonAfter(signal: AbortSignal): void {
  signal.addEventListener("abort", () => {
    const { reason } = signal;
    setTimeout(() => process.exit(reason instanceof Interrupted ? reason.exitCode : 1), LAST_MS).unref();
  });
}

const ignore = () => undefined;

/** Resolves when everything written to standard output has been taken, or cannot be. */
const flushed = () => new Promise<void>((resolve) => process.stdout.write("", () => resolve()));
