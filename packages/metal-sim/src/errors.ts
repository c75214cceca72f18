export interface Place {
  readonly file: string;
  readonly line: number;
}

export const showPlace = (place: Place) => `${place.file}:${place.line}`;

/** One construct that the translator does not take. */
export interface Refusal extends Place {
  /** The construct, as written. */
  readonly construct: string;
  readonly reason: string;
}

export const refusal = ({ file, line }: Place, construct: string, reason: string): Refusal => ({
  file,
  line,
  construct,
  reason,
});

export type MetalSimErrorCode =
  /** No suitable compiler is installed. */
  | "NoCompiler"
  /** The `.metal` text is wrong: the compiler's log is the message. */
  | "Compile"
  /** The `.metal` text has constructs that cannot be run faithfully: see `refusals`. */
  | "Untranslatable"
  /** The runner could not run the job. */
  | "Runner"
  /** A wrong argument. */
  | "InvalidArgument"
  /** A file cannot be read or written. */
  | "Io";

/** Every failure of this package that is not a finding about a kernel. */
export class MetalSimError extends Error {
  override readonly name = "MetalSimError";
  readonly code: MetalSimErrorCode;
  readonly refusals: readonly Refusal[];

  constructor(code: MetalSimErrorCode, message: string, refusals: readonly Refusal[] = []) {
    super(message);
    this.code = code;
    this.refusals = refusals;
  }
}

export function untranslatable(refusals: readonly Refusal[]): MetalSimError {
  const lines = refusals.map((r) => `${showPlace(r)}: \`${r.construct}\` ${r.reason}`);
  return new MetalSimError("Untranslatable", lines.join("\n"), refusals);
}
