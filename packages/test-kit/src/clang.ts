import { findClang } from "@mlxts/metal-sim";
import { describe } from "vitest";

/** Why the Metal simulator can compile no kernels here, or undefined. */
export function clangMissing(): string | undefined {
  try {
    findClang();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Tests that need the simulator's compiler, and what else is named; without it, skipped under a name that says why. */
export function withClang(name: string, body: () => void, alsoMissing?: string): void {
  const reason = clangMissing() ?? alsoMissing;
  if (reason === undefined) describe(name, body);
  else describe.skip(`${name} (skipped: ${reason})`, body);
}
