import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeEach, expect, vi } from "vitest";
import { removeTemporaryFolders } from "./temporary_folder.ts";

// Console output in a test fails it: libraries are silent. No spies, which take longer to make than most tests to run.
const METHODS = ["log", "info", "warn", "error", "debug"] as const;
const { ...real } = console;
let calls: unknown[][] = [];

beforeEach(() => {
  calls = [];
  for (const method of METHODS) console[method] = (...said) => void calls.push([method, ...said]);
});

afterEach(() => {
  Object.assign(console, real);
  vi.restoreAllMocks();
  if (calls.length > 0) expect(calls, "calls of console").toEqual([]);
});

afterAll(removeTemporaryFolders);

// Kernels that `metal-sim mutants` has changed: {path: text}.
const { MLXTS_METAL_TEXTS } = process.env;
if (MLXTS_METAL_TEXTS) {
  const { metalTexts } = await import("@mlxts/core/testing");
  for (const [path, text] of Object.entries(JSON.parse(readFileSync(MLXTS_METAL_TEXTS, "utf8"))))
    metalTexts.set(path, text as string);
}
