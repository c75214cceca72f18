import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { importCircles } from "@mlxts/test-kit/import_circles";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

describe("import circles", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "mlxts-circles-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  function circlesOf(files: Record<string, string>): string[] {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
    return importCircles({ folder, packageName: "@mlxts/example" });
  }

  it("are none where modules import in one direction", () => {
    const top = 'import { b } from "./b.ts"; import type { C } from "./c.ts"; import { readFileSync } from "node:fs";';
    expect(circlesOf({ "a.ts": top, "b.ts": 'export * from "./c.ts";', "c.ts": "export {};" })).toEqual([]);
  });

  it.each([
    ["values", 'import { b } from "./b.ts";'],
    ["side effects", 'import "./b.ts";'],
    ["types", 'import type { B } from "./b.ts";'],
    ["types among values", 'import { type B } from "./b.ts";'],
    ["exports", 'export * from "./b.ts";'],
    ["exported types", 'export type { B } from "./b.ts";'],
    ["import types", 'export type A = import("./b.ts").B;'],
    ["dynamic imports", 'export const load = () => import("./b.ts");'],
    ["additions to a module", 'declare module "./b.ts" { interface B { a: 1 } }\nexport {};'],
    ["imports without an ending", 'import { b } from "./b";'],
    ["imports of the JavaScript file", 'import { b } from "./b.js";'],
  ])("are found in %s", (_, text) => {
    expect(circlesOf({ "a.ts": text, "b.ts": 'import type { A } from "./a.ts";' })).toEqual(["a.ts → b.ts → a.ts"]);
  });

  it("are found through folders, the package's own name and a module itself", () => {
    expect(
      circlesOf({
        "index.ts": 'export * from "./parts/one.ts";',
        "parts/one.ts": 'import { two } from "./two.ts";',
        "parts/two.ts": 'import { one } from "@mlxts/example";',
        "self.ts": 'import type { Self } from "./self.ts";',
      }),
    ).toEqual(["index.ts → parts/one.ts → parts/two.ts → index.ts", "self.ts → self.ts"]);
  });

  it("are shown by a shortest one of modules that all reach each other", () => {
    expect(
      circlesOf({
        "a.ts": 'import "./b.ts";',
        "b.ts": 'import "./c.ts";',
        "c.ts": 'import "./a.ts"; import "./d.ts";',
        "d.ts": 'import "./c.ts";',
        "top.ts": 'import "./a.ts";',
      }),
    ).toEqual(["c.ts → d.ts → c.ts"]);
  });
});

it("no modules of core import each other in a circle, neither values nor types", () => {
  const folder = fileURLToPath(new URL("../src", import.meta.url));
  expect(importCircles({ folder, packageName: "@mlxts/core" })).toEqual([]);
});
