import { Presets, SingleBar } from "cli-progress";

export interface Progress {
  show(done: number, total: number, name: string): void;
  /** Removes the bar and restores the cursor and the line wrapping of the terminal. */
  stop(): void;
}

/** A progress bar on standard error, if that is a terminal. The terminal is restored however the process ends. */
export function progressBar(): Progress {
  const bar = new SingleBar(
    {
      format: "{bar} {value}/{total} {name}",
      stream: process.stderr,
      clearOnComplete: true,
      hideCursor: true,
      gracefulExit: false,
    },
    Presets.shades_classic,
  );
  let started = false;
  const stop = () => {
    process.off("exit", stop);
    if (started) bar.stop();
    started = false;
  };
  return {
    show(done, total, name) {
      if (!started) {
        process.on("exit", stop);
        bar.start(total, done, { name });
        started = true;
      } else bar.update(done, { name });
    },
    stop,
  };
}
