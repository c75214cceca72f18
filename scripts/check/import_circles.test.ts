import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { importCircles } from "@mlxts/test-kit/import_circles";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folders = ["packages", "apps"]
  .flatMap((parent) => readdirSync(`${root}${parent}`).map((name) => `${parent}/${name}`))
  .filter((folder) => existsSync(`${root}${folder}/src`));

it.each(folders)("no modules of %s import each other in a circle, neither values nor types", (folder) => {
  const { name } = JSON.parse(readFileSync(`${root}${folder}/package.json`, "utf8")) as { name: string };
  expect(importCircles({ folder: `${root}${folder}/src`, packageName: name })).toEqual([]);
});
