// Configures and builds everything native; incremental. `--only NAME` builds one package's kernels, in a folder of
// their own; further arguments go to CMake (e.g. -DMLXTS_SANITIZE=address,undefined).
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const { values, positionals } = parseArgs({
  args: process.argv.slice(2).map((arg) => (arg.startsWith("-D") ? `--define=${arg}` : arg)),
  options: { only: { type: "string" }, define: { type: "string", multiple: true } },
  allowPositionals: true,
});
if (positionals.length > 0) {
  console.error(`unknown argument: ${positionals[0]}`);
  process.exit(1);
}
const build = join(root, "build", values.only ? `native-${values.only}` : "native");
const defines = [...(values.define ?? []), ...(values.only ? [`-DMLXTS_ONLY=${values.only}`] : [])];

function run(...args) {
  const { status, error, stdout, stderr } = spawnSync("cmake", args, { cwd: root, encoding: "utf8" });
  if (!error && status === 0) return;
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}`);
  console.error(
    error
      ? `cannot run cmake: ${error.message} — install CMake and a C++20 compiler (Debian: apt-get install cmake g++ make)`
      : `cmake failed with status ${status}`,
  );
  process.exit(1);
}

/** Whether a folder was configured for another place or a compiler that has gone: a clone that was moved, or copied. */
function outdated(folder) {
  const cache = join(folder, "CMakeCache.txt");
  if (!existsSync(cache)) return false;
  const text = readFileSync(cache, "utf8");
  const entry = (name) => new RegExp(`^${name}:[A-Z]+=(.*)$`, "m").exec(text)?.[1] ?? "";
  const here = (path, place) => existsSync(path) && realpathSync(path) === realpathSync(place);
  return (
    !here(entry("CMAKE_HOME_DIRECTORY"), root) ||
    !here(entry("CMAKE_CACHEFILE_DIR"), folder) ||
    !existsSync(entry("CMAKE_CXX_COMPILER")) ||
    !existsSync(entry("CMAKE_COMMAND"))
  );
}

if (outdated(build)) rmSync(build, { recursive: true });
run("-S", root, "-B", build, ...defines);
run("--build", build, "--parallel", String(availableParallelism()));
