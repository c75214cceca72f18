import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { importCircles } from "@mlxts/test-kit/import_circles";
import { expect, it } from "vitest";

const src = fileURLToPath(new URL("../src", import.meta.url));

it("no imports of values or types form a circle", () => {
  expect(importCircles({ folder: src, packageName: "@mlxts/models" })).toEqual([]);
});

it("only the registry and the package's index import from the folder of a family", () => {
  const families = readdirSync(src, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const files = readdirSync(src).filter((name) => name.endsWith(".ts"));
  expect(families.map(({ name }) => name)).toContain("qwen3_5");
  const importers = files.filter((file) => {
    const text = readFileSync(join(src, file), "utf8");
    return families.some(({ name }) => text.includes(`"./${name}/`));
  });
  expect(importers).toEqual(["families.ts", "index.ts"]);
});

it("general code uses no op of a family's own, and does not name one", () => {
  const files = readdirSync(src).filter((name) => name.endsWith(".ts") && !["families.ts", "index.ts"].includes(name));
  for (const file of files) {
    const code = readFileSync(join(src, file), "utf8").replaceAll(/^\s*(\/\/|\/?\*).*$/gm, "");
    expect(code, file).not.toMatch(/qwen|delta|"@mlxts\/delta-rule"/i);
  }
});
