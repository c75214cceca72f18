import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, expect, it } from "vitest";
import { bundled } from "../src/bundled.mjs";

const root = fileURLToPath(new URL("../../../", import.meta.url));
mkdirSync(join(root, "build"), { recursive: true });
const folder = mkdtempSync(join(root, "build", "bundled-"));
const main = join(folder, "main.ts");
const path = relative(root, main);
afterAll(() => {
  rmSync(folder, { recursive: true });
  rmSync(join(root, "build", "bundles", dirname(path)), { recursive: true, force: true });
});
const write = (name: string, text: string) => writeFileSync(join(folder, name), text);

it("a bundle holds what its sources export, and where they lie, until one of them changes", async () => {
  write("part.ts", "export const value: number = 1;\n");
  write(
    "main.ts",
    'export { value } from "./part.ts";\nexport const url = import.meta.url;\nexport const text = "import.meta.url";\n',
  );
  const first = await bundled(path);
  expect(await import(first)).toMatchObject({ value: 1, url: pathToFileURL(main).href, text: "import.meta.url" });
  expect(await bundled(path)).toBe(first);
  write("part.ts", "export const value: number = 22;\n");
  const second = await bundled(path);
  expect(second).not.toBe(first);
  expect(await import(second)).toMatchObject({ value: 22 });
});

it("a bundle with packages imports them by names that it computes, and shares their modules with them", async () => {
  write(
    "main.ts",
    `import { Device } from "@mlxts/core";
const [core, norms] = ["core", "norms"].map((name) => "@mlxts/" + name);
const { suites } = await import(norms + "/testing");
console.log((await import(core as string)).Device === Device, suites.length > 10);
`,
  );
  const program = fileURLToPath(await bundled(path, { packages: true }));
  // Vitest would resolve the names in its own way.
  const { stdout, stderr } = spawnSync(process.execPath, [program], { encoding: "utf8" });
  expect([stdout, stderr]).toEqual(["true true\n", ""]);
});

it("a source that is wrong is an error that names the place, and leaves nothing behind", async () => {
  write("main.ts", "export const = 1;\n");
  await expect(bundled(path)).rejects.toThrow(/main\.ts:1:13/);
  write("main.ts", "export const one = 1;\n");
  expect(await import(await bundled(path))).toMatchObject({ one: 1 });
});
