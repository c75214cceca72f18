// In a clone, before the command line runs: builds the native code of its packages of which there is none yet. `npm start`
// builds only what its model needs.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const { dependencies } = JSON.parse(readFileSync(join(root, "apps", "cli", "package.json"), "utf8"));

function filesOf(name, ...folder) {
  const path = join(root, "packages", name, ...folder);
  return existsSync(path) ? readdirSync(path) : [];
}

const missing = Object.keys(dependencies)
  .flatMap((name) => (name.startsWith("@mlxts/") ? [name.slice("@mlxts/".length)] : []))
  .filter((name) => filesOf(name, "native").some((file) => file.endsWith(".cpp")))
  // The addon `core.node`, or kernels of any level, `norms.avx2.so`.
  .filter((name) => {
    const built = filesOf(name, "prebuilds", `${process.platform}-${process.arch}`);
    return !built.some((file) => file.startsWith(`${name}.`));
  });
if (missing.length > 0) {
  console.error(`building native code of ${missing.join(", ")} …`);
  const args = missing.flatMap((name) => ["--only", name]);
  const { status } = spawnSync(
    process.execPath,
    [join(root, "scripts", "native", "build-native.mjs"), "--levels", "best", ...args],
    { stdio: ["ignore", "inherit", "inherit"] },
  );
  if (status !== 0) process.exit(1);
}
