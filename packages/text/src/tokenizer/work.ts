import { MlxtsError } from "@mlxts/common/errors";

/**
 * Counts the steps that files and texts cause, so that a call ends after a known amount of work whatever they hold: the
 * time that a step takes is some ten nanoseconds.
 */
export class Work {
  private left: number;
  private readonly path: string;
  private readonly what: string;
  private readonly most: number;

  /** @param most steps; `what` takes them, because of the file `path` */
  constructor(path: string, what: string, most: number) {
    this.path = path;
    this.what = what;
    this.most = most;
    this.left = most;
  }

  /** @throws MlxtsError `LimitExceeded` when more than the most steps were taken */
  spend(steps: number): void {
    this.left -= steps;
    if (this.left < 0) throw this.exceeded(`takes more than ${this.most} steps (maxSteps)`);
  }

  /** Begins anew, for the next call. */
  renew(): void {
    this.left = this.most;
  }

  exceeded(reason: string): MlxtsError {
    const { path, what } = this;
    return new MlxtsError("LimitExceeded", `${path}: ${what} ${reason}`, { path, reason });
  }
}
