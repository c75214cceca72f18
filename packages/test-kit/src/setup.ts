import { readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, vi } from "vitest";

// Console output in a test fails it: libraries are silent.
const METHODS = ["log", "info", "warn", "error", "debug"] as const;

beforeEach(() => {
  for (const method of METHODS) vi.spyOn(console, method);
});

afterEach(() => {
  for (const method of METHODS) expect(console[method], `console.${method} was called`).not.toHaveBeenCalled();
  vi.restoreAllMocks();
});

// Kernels that `metal-sim mutants` has changed: {path: text}.
const { MLXTS_METAL_TEXTS } = process.env;
if (MLXTS_METAL_TEXTS) {
  const { metalTexts } = await import("@mlxts/core/testing");
  for (const [path, text] of Object.entries(JSON.parse(readFileSync(MLXTS_METAL_TEXTS, "utf8"))))
    metalTexts.set(path, text as string);
}
