import { fileURLToPath } from "node:url";
import { describe } from "vitest";
import { clangMissing } from "../../../scripts/clang-missing.ts";

/** A suite that needs the compiler, and what else is named; without it, skipped under a name that says why. */
export function withClang(name: string, body: () => void, alsoMissing?: string): void {
  const reason = clangMissing() ?? alsoMissing;
  if (reason === undefined) describe(name, body);
  else describe.skip(`${name} (skipped: ${reason})`, body);
}

export const example = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
