// The packages of this repository, and what they need of each other.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./clang.mjs";

/** The package.json of every package, with its folder, e.g. `packages/norms`. */
export const workspace = () =>
  ["packages", "apps"].flatMap((group) =>
    readdirSync(join(root, group)).flatMap((name) => {
      const path = join(root, group, name, "package.json");
      return existsSync(path) ? [{ folder: `${group}/${name}`, ...JSON.parse(readFileSync(path, "utf8")) }] : [];
    }),
  );

/** Packages of this repository that the one in `folder` names under one of `fields` of its package.json. */
function named(folder, ...fields) {
  const all = workspace();
  const manifest = all.find((each) => each.folder === folder);
  if (!manifest) throw new Error(`there is no package in ${folder}`);
  return all.filter(({ name }) => fields.some((field) => manifest[field]?.[name])).map((each) => each.folder);
}

export const devDependencies = (folder) => named(folder, "devDependencies");

/** The folders of these packages and of all that they run on, each after its own. */
export function withDependencies(...folders) {
  const order = new Set();
  for (const folder of folders) {
    for (const each of withDependencies(...named(folder, "dependencies", "peerDependencies"))) order.add(each);
    order.add(folder);
  }
  return [...order];
}

/** Those of them that have native code, by the names that `buildNative` takes. */
export const nativePackages = (...folders) =>
  withDependencies(...folders).flatMap((folder) => {
    const [group, name] = folder.split("/");
    return group === "packages" && name !== "metal-sim" && existsSync(join(root, folder, "native")) ? [name] : [];
  });

/** The same with what their tests run on beside it. */
export function nativeForTests(...folders) {
  const names = nativePackages(...folders, ...folders.flatMap(devDependencies));
  return folders.includes("packages/core") ? [...names, "core-test"] : names;
}
