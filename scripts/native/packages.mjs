// The packages of this repository, and what they need of each other to run.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./clang.mjs";

/** Every package's folder, e.g. `packages/norms`, with its package.json. */
export const workspace = () =>
  ["packages", "apps"].flatMap((group) =>
    readdirSync(join(root, group)).flatMap((name) => {
      const manifest = join(root, group, name, "package.json");
      return existsSync(manifest)
        ? [{ folder: `${group}/${name}`, ...JSON.parse(readFileSync(manifest, "utf8")) }]
        : [];
    }),
  );

/** The folders of the packages that the one in `folder` runs on, each after its own; `folder` is the last. */
export function withDependencies(folder) {
  const all = workspace();
  const order = new Set();
  const visit = ({ folder, dependencies, peerDependencies }) => {
    for (const name of Object.keys({ ...peerDependencies, ...dependencies })) {
      const other = all.find((each) => each.name === name);
      if (other) visit(other);
    }
    order.add(folder);
  };
  const start = all.find((each) => each.folder === folder);
  if (!start) throw new Error(`there is no package in ${folder}`);
  visit(start);
  return [...order];
}

/** Those of them that have native code for `buildNative`. */
export const nativePackages = (folder) =>
  withDependencies(folder).flatMap((each) => {
    const [group, name] = each.split("/");
    return group === "packages" && name !== "metal-sim" && existsSync(join(root, each, "native")) ? [name] : [];
  });
