import { wrongKind } from "./errors.ts";
import { checkOptionNames } from "./options.ts";
import { checkSignal } from "./signal.ts";

export interface CommitOptions {
  /** Time each dispatch by itself (they then run one after another). Default `false`. */
  profile?: boolean | undefined;
  /**
   * Aborted before the call: nothing is submitted, and the call throws the signal's reason. Aborted later: awaiting the
   * submission rejects with the reason at once, while the device finishes what it was given.
   */
  signal?: AbortSignal | undefined;
}

/** What `commit` takes besides: see `EndOptions`. */
interface KeepOptions {
  keep?: unknown;
}

const NO_OPTIONS: CommitOptions = Object.freeze({ profile: false, signal: undefined });

/** A checked copy of the options. Each is read once, so that a getter cannot give another value after the checks. */
export function readCommitOptions(op: string, options: CommitOptions = NO_OPTIONS): CommitOptions {
  if (options === NO_OPTIONS) return NO_OPTIONS;
  checkOptionNames<CommitOptions>(op, options, { profile: true, signal: true });
  const { profile = false, signal } = options;
  if (typeof profile !== "boolean") throw wrongKind(op, "profile", "be a boolean", profile);
  checkSignal(op, signal);
  return { profile, signal };
}

/** The same for an encoder's `commit`; what `keep` may be is checked later. */
export function readEndOptions(op: string, options: CommitOptions & KeepOptions): CommitOptions & KeepOptions {
  checkOptionNames<CommitOptions & KeepOptions>(op, options, { profile: true, signal: true, keep: true });
  const { keep, ...rest } = options;
  return { ...readCommitOptions(op, rest), keep };
}
