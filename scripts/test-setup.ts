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
