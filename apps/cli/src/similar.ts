import { Command } from "commander";

/** ` (Did you mean rmsNorm?)`, as commander says it of commands and options; nothing where no name is alike. */
export function similar(given: string, names: readonly string[]): string {
  const known = new Command().exitOverride().configureOutput({ outputError: () => undefined });
  for (const name of names) known.command(name).action(() => undefined);
  try {
    known.parse([given], { from: "user" });
  } catch (error) {
    return / ?\(Did you mean [^)]*\)/.exec((error as Error).message.replaceAll("\n", " "))?.[0] ?? "";
  }
  return "";
}
