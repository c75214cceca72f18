import { ArgumentRangeError, type ErrorCode, MlxtsError } from "./errors.ts";
import type { NativeOutcome } from "./native.ts";
import type { Accesses } from "./ranges.ts";

/** The op of a label `op/kernel_variant`. */
const opOf = (label: string): string => label.split("/")[0] as string;

/** What has gone wrong, as the kernel's declaration or the device says it. */
function failureText({ accesses }: { accesses: readonly Accesses[] }, { fault, tag, message }: NativeOutcome): string {
  if (!fault) return message ?? "";
  const [code, ...words] = fault;
  return accesses[tag as number]?.fault?.(code, words) ?? message ?? "";
}

/** The error of a submission that failed. `origin`: where it was committed, which becomes the error's stack. */
export function failureOf(
  commands: { readonly accesses: readonly Accesses[]; readonly labels: readonly string[] },
  outcome: NativeOutcome,
  origin: Error,
): Error {
  const ops = [...new Set(commands.labels.map(opOf))];
  // A device that cannot tell which dispatch failed names an op only if there is no other.
  const label = outcome.tag === undefined ? undefined : commands.labels[outcome.tag];
  const op = label !== undefined ? opOf(label) : ops.length === 1 ? (ops[0] as string) : "submission";
  const text = failureText(commands, outcome);
  const [, argument, rule, value] = /^`([^`]+)` must (.+), got (.+)$/s.exec(text) ?? [];
  const isArgument = outcome.code === "InvalidArgument";
  const error =
    isArgument && argument !== undefined && rule !== undefined && value !== undefined
      ? new ArgumentRangeError({ op, argument, rule, value })
      : new MlxtsError(isArgument ? "CommandBuffer" : (outcome.code as ErrorCode), `${op}: ${text}`, {
          cause: outcome.cause ?? "unknown",
          ops,
        });
  const committedAt = origin.stack?.split("\n").slice(1).join("\n") ?? "";
  error.stack = `${error.name}: ${error.message}\n    committed at:\n${committedAt}`;
  return error;
}
