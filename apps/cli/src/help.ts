import { argumentOf, type Command, flagOf, usageOf } from "./contract.ts";

/** Lines of two columns; the first is as wide as its widest text. */
function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}

/** The help of one command. */
export function commandHelp(of: Command): string {
  const positionals = Object.entries(of.arguments).map(([name, each]) => [argumentOf(name, each), each.doc] as const);
  const options = Object.entries(of.options).map(
    ([name, { placeholder, doc, multiple }]) =>
      [`${flagOf(name)}${placeholder === undefined ? "" : ` ${placeholder}${multiple ? " …" : ""}`}`, doc] as const,
  );
  const one = of.exactlyOne?.map(flagOf).join(", ");
  return [
    `Usage: ${usageOf(of)}`,
    "",
    of.summary,
    ...(positionals.length > 0 ? ["", "Arguments", ...columns(positionals)] : []),
    "",
    `Options${one ? ` (exactly one of ${one})` : ""}`,
    ...columns([...options, ["-h, --help", "print this"]]),
    ...(of.notes ? ["", ...of.notes] : []),
    "",
  ].join("\n");
}

/** The help of the program, which lists the commands. */
export function programHelp(commands: readonly Command[]): string {
  const shown = commands.filter(({ hidden }) => !hidden);
  return [
    "Usage: mlxts <command> [arguments] [options]",
    "",
    "Run, quantize and inspect language models, try single mlxts ops, and verify them on this machine.",
    "",
    "Commands",
    ...columns(shown.map(({ name, summary }) => [name, summary] as const)),
    "",
    "`mlxts help <command>` or `mlxts <command> --help` shows its arguments and options; `mlxts --version` the version.",
    "",
    "Exit codes: 0 done, 1 refused or failed (one line says why), 2 wrong usage, 130 interrupted (143 by SIGTERM).",
    "",
  ].join("\n");
}
