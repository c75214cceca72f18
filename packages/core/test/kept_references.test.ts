import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { keptReference } from "../src/testing/kept_references.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "mlxts-references-"));
  vi.stubEnv("MLXTS_REFERENCES", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

const input = (...data: number[]) => ({ x: { dtype: "f32", shape: [data.length], raw: new Float32Array(data) } });
const result = () => ({ out: { shape: [3], data: Float64Array.of(Number.NaN, -0, 1 / 3) } });

/** Takes long enough to be kept; counts how often it is called. */
function slow() {
  return vi.fn(() => {
    for (const until = performance.now() + 5; performance.now() < until; );
    return result();
  });
}

it("is computed once for the same call and inputs", () => {
  const compute = slow();
  const get = (options: object, ...data: number[]) => keptReference(["op", options, "f32"], input(...data), compute);
  for (let i = 0; i < 2; i++) expect(get({ eps: Number.NaN }, 1, 2)).toEqual(result());
  expect(compute).toHaveBeenCalledTimes(1);
  get({ eps: Number.POSITIVE_INFINITY }, 1, 2);
  get({ eps: Number.NaN }, 1, -0);
  get({ eps: Number.NaN }, 1, 0);
  get({ eps: Number.NaN }, 1);
  expect(compute).toHaveBeenCalledTimes(5);
});

it("is not kept where it takes no time, or no folder is named", () => {
  keptReference(["op"], input(1), result);
  expect(readdirSync(folder)).toEqual([]);
  vi.stubEnv("MLXTS_REFERENCES", "");
  const compute = slow();
  for (let i = 0; i < 2; i++) keptReference(["op"], input(1), compute);
  expect(compute).toHaveBeenCalledTimes(2);
});
