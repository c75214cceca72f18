// Builds native code with CMake, incrementally: everything, or some packages at some instruction-set levels.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { locked } from "./lock.mjs";
import { onlyBestOptimized, unoptimized } from "./unoptimized.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const folder = join(root, "build", "native");

/** Runs CMake, quietly but for warnings of a run that succeeds. */
function cmake(...args) {
  const { status, error, stdout, stderr } = spawnSync("cmake", args, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (!error && status === 0) return stderr;
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}`);
  console.error(
    error
      ? `cannot run cmake: ${error.message} — install CMake and a C++20 compiler (Debian: apt-get install cmake g++ make)`
      : `cmake failed with status ${status}`,
  );
  process.exit(1);
}

/** Whether the folder was configured for another place or a compiler that has gone: a clone that was moved, or copied. */
function outdated() {
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

function configure(defines) {
  if (outdated()) rmSync(folder, { recursive: true });
  process.stderr.write(cmake("-S", root, "-B", folder, ...defines));
}

/** What CMake can build; `level` is empty for what has none. */
const targets = () =>
  readFileSync(join(folder, "targets.txt"), "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => {
      const [name, owner, level, file] = line.split("\t");
      return { name, package: owner, level, file };
    });

const build = (target) => cmake("--build", folder, "--parallel", String(availableParallelism()), "--target", target);

/** The levels that this machine runs, the best first, as core tells them; the addon is built for it. */
function runnableLevels() {
  build("core_addon");
  const { file } = targets().find(({ name }) => name === "core_addon");
  return createRequire(import.meta.url)(file).cpuLevels();
}

/**
 * The level that the packages will run at: the first one from MLXTS_CPU_LEVEL on (from the best, where it is not set) that
 * the compiler can build, as core's `Library` chooses among files.
 */
function bestLevel(levels) {
  const wanted = levels.slice(Math.max(0, levels.indexOf(process.env.MLXTS_CPU_LEVEL)));
  const built = new Set(targets().map(({ level }) => level));
  return wanted.find((level) => built.has(level));
}

/** What `levels` may be. `best` is the level that will be used; libraries of others that are there are kept up to date. */
export const LEVELS = ["all", "runnable", "best"];

/** Levels that are compiled without optimization, as CMake takes them. */
function levelsLeftSlow() {
  const runnable = runnableLevels();
  const optimized = onlyBestOptimized() ? [bestLevel(runnable)] : runnable;
  return [...new Set(targets().map(({ level }) => level))]
    .filter((level) => level && !optimized.includes(level))
    .join(";");
}

/** Says what takes minutes: nothing where each file is there and is only looked at again. */
function announce(chosen) {
  if (chosen.every(({ file }) => existsSync(file))) return;
  const names = (key) => [...new Set(chosen.map((target) => target[key]))].filter(Boolean).join(", ");
  console.error(`building native code: ${names("package")}; levels: ${names("level") || "none"} …`);
}

/** `packages` are names of folders in packages/, and `core-test` for what core's tests run; undefined: all. */
export function buildNative({ packages, levels = "all", defines = [] } = {}) {
  mkdirSync(join(root, "build"), { recursive: true });
  locked(join(root, "build", "native.lock"), () => {
    const optimizeAllBut = (others) => `-DMLXTS_UNOPTIMIZED_LEVELS=${others}`;
    configure(unoptimized() ? defines : [...defines, optimizeAllBut("")]);
    // Which levels this machine runs, core's addon tells, which has to be built.
    if (unoptimized()) configure([optimizeAllBut(levelsLeftSlow())]);
    if (!packages && levels === "all") {
      announce(targets());
      return build("all");
    }
    const unknown = packages?.find((name) => !targets().some((target) => target.package === name));
    if (unknown) throw new Error(`packages/${unknown} has no native code`);
    const runnable = levels === "all" ? undefined : runnableLevels();
    const best = levels === "best" ? bestLevel(runnable) : undefined;
    const wanted = ({ level, file }) =>
      !level || !runnable || (best ? level === best || existsSync(file) : runnable.includes(level));
    const chosen = targets().filter((target) => (!packages || packages.includes(target.package)) && wanted(target));
    configure([`-DMLXTS_PICKED=${chosen.map(({ name }) => name).join(";")}`]);
    announce(chosen);
    build("picked");
  });
}
