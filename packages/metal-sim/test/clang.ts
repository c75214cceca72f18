import { fileURLToPath } from "node:url";
import { describe } from "vitest";
import { findClang } from "../src/index.ts";

function missing(): string | undefined {
  try {
    findClang();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

const reason = missing();

/** A suite that needs the compiler; without it, skipped under a name that says why. */
export const withClang = (name: string, body: () => void) =>
  reason === undefined ? describe(name, body) : describe.skip(`${name} (skipped: ${reason})`, body);

export const example = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
