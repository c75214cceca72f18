/** A command was ended from outside: why, and the exit code that tells. */
export class Interrupted extends Error {
  readonly exitCode: number;

  constructor(by: string, exitCode: number) {
    super(`interrupted by ${by}`);
    this.exitCode = exitCode;
  }
}

/** Signals that end a command, with the exit codes by which shells know them. */
const EXIT_CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

/**
 * Runs a command with an `AbortSignal` that the first SIGINT, SIGTERM or SIGHUP aborts; so does a reader of the output
 * who has gone, with exit code 0. A second signal ends the process at once, after its listeners of `exit`.
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
  const lost = (error: NodeJS.ErrnoException) =>
    controller.abort(
      error.code === "EPIPE" ? new Interrupted("its reader", 0) : new Error(`cannot write: ${error.message}`),
    );
  const streams = [process.stdout, process.stderr];
  for (const stream of streams) {
    stream.on("error", lost);
    // What is said last may find nobody either.
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
    for (const stream of streams) stream.off("error", lost);
  }
}

const ignore = () => undefined;

/** When everything written to standard output has arrived, or cannot. */
const flushed = () => new Promise<void>((resolve) => process.stdout.write("", () => resolve()));
