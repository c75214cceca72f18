/** Why a template fails: as Python's exceptions do, for a construct that is not supported, or at a limit. */
export type FaultKind = "syntax" | "type" | "value" | "undefined" | "security" | "raised" | "unsupported" | "limit";

/** A failure within a template; `line` is known once the statement that fails is known. */
export class Fault extends Error {
  readonly kind: FaultKind;
  line: number | undefined;

  constructor(kind: FaultKind, message: string, line?: number) {
    super(message);
    this.kind = kind;
    this.line = line;
  }
}

export const typeFault = (message: string) => new Fault("type", message);
export const valueFault = (message: string) => new Fault("value", message);
/** A construct of Python or jinja2 that this engine refuses, since it would render it differently. */
export const unsupported = (construct: string) => new Fault("unsupported", `${construct} is not supported`);
