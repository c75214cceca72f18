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

/** The options, each read once: what a getter does cannot come between the checks and the submission. */
export function readCommitOptions(op: string, options: CommitOptions): CommitOptions {
  checkOptionNames<CommitOptions>(op, options, { profile: true, signal: true });
  const { profile = false, signal } = options;
  if (typeof profile !== "boolean") throw wrongKind(op, "profile", "be a boolean", profile);
  checkSignal(op, signal);
  return { profile, signal };
}
