// The binaries that the packages promise (README.md, Platforms), and those of them that a clone lacks.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { workspace } from "../native/workspace.mjs";

/** Instruction-set levels of the kernels for each platform. */
const LEVELS = { "linux-x64": ["sse2", "avx2", "avx512", "amx"], "linux-arm64": ["neon"], "darwin-arm64": ["neon"] };
/** The simulator compiles its native code where it runs. */
const WITHOUT_BINARIES = ["packages/metal-sim"];

function promisedBy(root, folder) {
  const name = folder.split("/")[1];
  const prebuilds = (...path) => join(folder, "prebuilds", ...path);
  if (name === "core") return Object.keys(LEVELS).map((platform) => prebuilds(platform, "core.node"));
  const shaders = readdirSync(join(root, folder, "native")).filter((file) => file.endsWith(".metal"));
  return [
    ...Object.entries(LEVELS).flatMap(([platform, levels]) =>
      levels.map((level) => prebuilds(platform, `${name}.${level}.so`)),
    ),
    ...shaders.map((file) => prebuilds("cuda", file.replace(/metal$/, "ptx.br"))),
  ];
}

/** The paths of all promised binaries, from the root of a clone. */
export const promisedBinaries = (root) =>
  workspace()
    .filter((each) => !each.private && !WITHOUT_BINARIES.includes(each.folder))
    .filter(({ folder }) => existsSync(join(root, folder, "native")))
    .flatMap(({ folder }) => promisedBy(root, folder));

export const missingBinaries = (root) => promisedBinaries(root).filter((path) => !existsSync(join(root, path)));
