import { Presets, SingleBar } from "cli-progress";

export interface Progress {
  show(done: number, total: number, name: string): void;
  /** Takes the bar away and gives the terminal its cursor and line wrapping back. */
  stop(): void;
}

/** A bar on standard error, if that is a terminal. However the process ends, the terminal is left as it was. */
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
