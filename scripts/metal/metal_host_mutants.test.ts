import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "../check/packages.ts";

interface Mutant {
  file: string;
  is: string;
  becomes: string;
  reason?: string;
}
const mutants = JSON.parse(readFileSync(join(root, "scripts", "metal", "metal_host_mutants.json"), "utf8")) as Mutant[];

it("each fault of the Metal host code has one place, and is another text", () => {
  for (const { file, is, becomes } of mutants) {
    const text = readFileSync(join(root, "packages", "core", "native", file), "utf8");
    expect(text.split(is).length - 1, `${file}: ${is}`).toBe(1);
    expect(becomes).not.toBe(is);
  }
});

it("none is listed twice", () => {
  expect(new Set(mutants.map(({ file, is, becomes }) => `${file}\n${is}\n${becomes}`)).size).toBe(mutants.length);
});
