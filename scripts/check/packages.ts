// The packages of this repository, as its folders say.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { OpDescriptor } from "@mlxts/core";

export const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = (name: string, ...path: string[]) => join(root, "packages", name, ...path);

/** Folders under packages/ that are published. */
export const publishedPackages: readonly string[] = readdirSync(join(root, "packages")).filter(
  (name) => !JSON.parse(readFileSync(folder(name, "package.json"), "utf8")).private,
);

/** Those of ops: they have kernels, and suites of cases. */
export const opPackages = publishedPackages.filter((name) =>
  [folder(name, "native"), folder(name, "test", "suites.ts")].every((path) => existsSync(path)),
);

/** The module with the suites of a package of ops. */
export const suitesModule = (name: string): string => pathToFileURL(folder(name, "test", "suites.ts")).href;

/** The descriptors of the ops that the packages export. */
export async function allOps(): Promise<OpDescriptor[]> {
  const modules = await Promise.all(
    opPackages.map((name) => import(pathToFileURL(folder(name, "src", "index.ts")).href) as Promise<object>),
  );
  return modules
    .flatMap((module) => Object.values(module))
    .flatMap((value) => (typeof value === "function" && "op" in value ? [value.op as OpDescriptor] : []));
}
