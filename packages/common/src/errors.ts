// The errors of every package. Core and text carry this module in their own bundles, and run it in a browser too: it imports
// nothing, and `instanceof` knows the errors of every copy.

/** Codes of everything mlxts throws. */
export type ErrorCode =
  | "DeviceNotFound"
  | "CommandBuffer"
  | "ShaderCompilation"
  | "BufferAllocation"
  | "InvalidArgument"
  | "KernelNotFound"
  | "Io"
  | "Safetensors"
  | "QuantConfig"
  | "UnsupportedDtype"
  | "ResidencySet"
  | "Busy"
  | "NotANumber"
  | "ChatTemplate"
  | "LimitExceeded"
  | "Disposed";

/** Why a submission failed. */
export type CommandBufferCause =
  | "timeout"
  | "interrupted"
  | "outOfMemory"
  | "pageFault"
  | "invalidResource"
  | "deviceLost"
  | "unknown";

const TRANSIENT_CAUSES: ReadonlySet<string> = new Set<CommandBufferCause>([
  "timeout",
  "interrupted",
  "outOfMemory",
  "unknown",
]);

/** Lets `instanceof` know errors of all copies of this module, and gives a class its name after a bundler has renamed it. */
function shareClass(name: string, type: { readonly prototype: object }): void {
  const mark = Symbol.for(`mlxts.${name}`);
  Object.defineProperty(type.prototype, mark, { value: true });
  Object.defineProperty(type, "name", { value: name });
  Object.defineProperty(type, Symbol.hasInstance, {
    value(this: unknown, value: unknown): boolean {
      if (this !== type) return Function.prototype[Symbol.hasInstance].call(this, value);
      return value !== null && typeof value === "object" && mark in value;
    },
  });
}

/** Every failure but wrong arguments: of a device, a file, or a call at a wrong time. `details` holds the fields of its code, e.g. `tried`, `log`, `bytes`, `path`, `tensor`, `reason`. */
export class MlxtsError extends Error {
  override readonly name = "MlxtsError";
  readonly code: ErrorCode;
  /** The same call may succeed when it is made again. */
  readonly transient: boolean;
  readonly details: Readonly<Record<string, unknown>>;

  static {
    shareClass("MlxtsError", MlxtsError);
  }

  constructor(code: ErrorCode, message: string, details: Record<string, unknown> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.details = details;
    this.transient = code === "Busy" || (code === "CommandBuffer" && TRANSIENT_CAUSES.has(String(details.cause)));
  }
}

/** What an argument error says: op, argument, rule, value and, where there is one, a remedy. */
export interface ArgumentFault {
  op: string;
  argument: string;
  rule: string;
  value: string;
  remedy?: string | undefined;
}

function faultMessage({ op, argument, rule, value, remedy }: ArgumentFault): string {
  return `${show(op)}: \`${show(argument)}\` must ${show(rule)}, got ${value}${remedy ? ` — ${show(remedy)}` : ""}`;
}

/** An argument of the wrong kind. */
export class ArgumentTypeError extends TypeError {
  override readonly name = "TypeError";
  readonly code = "InvalidArgument" satisfies ErrorCode;
  readonly transient = false;
  readonly fault: ArgumentFault;

  static {
    shareClass("ArgumentTypeError", ArgumentTypeError);
  }

  constructor(fault: ArgumentFault) {
    super(faultMessage(fault));
    this.fault = fault;
  }
}

/** An argument of the right kind with a wrong value. */
export class ArgumentRangeError extends RangeError {
  override readonly name = "RangeError";
  readonly code = "InvalidArgument" satisfies ErrorCode;
  readonly transient = false;
  readonly fault: ArgumentFault;

  static {
    shareClass("ArgumentRangeError", ArgumentRangeError);
  }

  constructor(fault: ArgumentFault) {
    super(faultMessage(fault));
    this.fault = fault;
  }
}

/** Whether a text, shown without quotes, reads as a value of another kind (`5`, `null`) or as nothing. */
const readsAsAnother = (text: string) =>
  ["true", "false", "null", "undefined"].includes(text) || !Number.isNaN(Number(text));

/** What a package knows of objects beyond the language. */
export interface Objects {
  isProxy(value: object): boolean;
  /** For an object of a copy of the package that does not work together with this one: a name for it, and the remedy. */
  foreign(value: object): { name: string; remedy: string } | undefined;
}

let objects: Objects = { isProxy: () => false, foreign: () => undefined };

/** Tells messages more about objects; without it they know proxies and foreign objects by their class alone. */
export function describeObjectsBy(known: Objects): void {
  objects = known;
}

function faultOf(op: string, argument: string, rule: string, value: unknown, remedy?: string): ArgumentFault {
  const other = value !== null && typeof value === "object" ? objects.foreign(value) : undefined;
  return { op, argument, rule, value: show(value), remedy: remedy ?? other?.remedy };
}

/** The error of an argument of the wrong kind: ``op: `argument` must <rule>, got <value>``. */
export function wrongKind(
  op: string,
  argument: string,
  rule: string,
  value: unknown,
  remedy?: string,
): ArgumentTypeError {
  const got = typeof value === "string" && readsAsAnother(value) ? JSON.stringify(value) : value;
  return new ArgumentTypeError(faultOf(op, argument, rule, got, remedy));
}

/** The error of an argument of the right kind with a value that breaks its rule. */
export function wrongValue(
  op: string,
  argument: string,
  rule: string,
  value: unknown,
  remedy?: string,
): ArgumentRangeError {
  const got = typeof value === "string" && value.trim() === "" ? JSON.stringify(value) : value;
  return new ArgumentRangeError(faultOf(op, argument, rule, got, remedy));
}

/** How deep arrays in arrays are shown; a cycle ends here. */
const SHOWN_DEPTH = 4;

/** Any value in a few words, for the end of a message. Never throws. */
export function show(value: unknown): string {
  return describe(value, 0);
}

function describe(value: unknown, depth: number): string {
  if (typeof value === "string") return value;
  if (typeof value === "function") return "a function";
  if (value === null || typeof value !== "object") return String(value);
  if (objects.isProxy(value)) return "a Proxy";
  try {
    if (Array.isArray(value))
      return value.length > 16 || depth === SHOWN_DEPTH
        ? `an array of ${value.length}`
        : `[${Array.from({ length: value.length }, (_, i) => describe(value[i], depth + 1)).join(", ")}]`;
    const other = objects.foreign(value);
    if (other) return other.name;
    const name = String(value.constructor?.name ?? "an object");
    return ArrayBuffer.isView(value) ? `${name}(${value.byteLength} bytes)` : name;
  } catch {
    // A getter of the value's own throws.
    return "an object";
  }
}

export function disposedError(what: string): MlxtsError {
  return new MlxtsError("Disposed", `the ${what} has been disposed`, { what });
}

/** A file operation that failed; errors that are ours already pass through. */
export function ioError(path: string, operation: string, error: unknown): Error {
  if (error instanceof MlxtsError) return error;
  const { message, code, syscall } = error as Error & { code?: string; syscall?: string };
  // Node.js ends its message with the call and the path, which this one begins with.
  const end = message.lastIndexOf(`, ${syscall}`);
  const reason = syscall === undefined || end < 0 ? message : message.slice(0, end);
  return new MlxtsError("Io", `cannot ${operation} ${path}: ${reason}`, { path, operation, systemCode: code }, error);
}

type Inspect = (value: unknown, options: object) => string;

/**
 * Lets `console.log` print the objects of a class as their `toJSON` tells: what they are and where, not how they are
 * built. `toJSON` must not throw, whatever the state of the object.
 */
export function printAsJson<T extends { toJSON(): object }>(type: { readonly prototype: T }): void {
  Object.defineProperty(type.prototype, Symbol.for("nodejs.util.inspect.custom"), {
    value(this: T, depth: number, options: object, inspect: Inspect): string {
      let summary: object;
      try {
        summary = this.toJSON();
      } catch {
        // Only objects that the class has made have its private fields.
        return `[${objects.isProxy(this) ? "Proxy" : "Object"} over a ${(type as { name?: string }).name}]`;
      }
      const { type: name, ...fields } = summary as { type: string } & Record<string, unknown>;
      return depth < 0 ? `[${name}]` : `${name} ${inspect(fields, { ...options, depth: 2 })}`;
    },
  });
}
