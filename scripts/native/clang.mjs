// Finds compilers and compiles what has changed; used by build-metal-sim, build-darwin and build-linux.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const core = join(root, "packages", "core", "native");
export const framework = join(root, "packages", "metal-sim", "native", "framework");
const modules = join(root, "node_modules");

export const addonFlags = [
  "-std=gnu++20",
  "-fvisibility=hidden",
  "-Wall",
  "-Wextra",
  "-Werror",
  "-Wno-psabi",
  "-DNAPI_VERSION=8",
  "-DNODE_ADDON_API_CPP_EXCEPTIONS",
  "-DNODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
  `-isystem${join(modules, "node-addon-api")}`,
  `-isystem${join(modules, "node-api-headers", "include")}`,
];
/** For an addon that has the Metal device. */
export const metalFlags = ["-DMLXTS_METAL"];
export const objcFlags = ["-fblocks", "-fno-objc-arc", "-fexceptions"];
/** Of the op packages' CPU kernels, as in CMakeLists.txt. */
export const kernelFlags = [
  "-std=gnu++20",
  "-fvisibility=hidden",
  "-Wall",
  "-Wextra",
  "-Werror",
  "-Wno-psabi",
  "-Wno-unneeded-internal-declaration",
  "-Wno-unused-const-variable",
  "-fno-exceptions",
  "-fno-rtti",
  "-fno-math-errno",
  "-fno-trapping-math",
  "-ffp-contract=fast",
];

export function fail(message) {
  console.error(message);
  process.exit(1);
}

/** Fails with the packages to install when a program is missing. */
export function need(program, debian) {
  if (spawnSync(program, ["--version"], { stdio: "ignore" }).status !== 0)
    fail(`${program} not found — install it (Debian: apt-get install ${debian})`);
}

export const files = (folder, suffix) =>
  readdirSync(folder)
    .filter((name) => name.endsWith(suffix))
    .sort()
    .map((name) => join(folder, name));

/** The sources of core's addon, with the Metal device. */
export const addonSources = () => [
  ...files(core, ".cpp").filter((path) => basename(path) !== "library_abi.cpp"),
  ...files(core, ".mm"),
];

/** The op packages with CPU kernels, each with the sources of its kernel library. */
export const kernelPackages = () =>
  readdirSync(join(root, "packages")).flatMap((name) => {
    const native = join(root, "packages", name, "native");
    if (["core", "metal-sim", "test-kit"].includes(name) || !existsSync(native)) return [];
    return [{ name, sources: [...files(native, ".cpp"), join(core, "library_abi.cpp")] }];
  });

/** Whether an object is older than something that it was made from, after the compiler's own list. */
function stale(object, command) {
  const list = `${object}.d`;
  if (!existsSync(object) || !existsSync(list) || !existsSync(`${object}.cmd`)) return true;
  if (readFileSync(`${object}.cmd`, "utf8") !== command.join("\n")) return true;
  const made = statSync(object).mtimeMs;
  const [, inputs] = readFileSync(list, "utf8").replaceAll("\\\n", " ").split(/:\s/, 2);
  return inputs
    .trim()
    .split(/\s+/)
    .some((path) => !existsSync(path) || statSync(path).mtimeMs > made);
}

function run(command) {
  return new Promise((resolve) => {
    const child = spawn(command[0], command.slice(1), { stdio: ["ignore", "inherit", "inherit"] });
    child.on("error", (error) => fail(`cannot run ${command[0]}: ${error.message}`));
    child.on("exit", (status) => resolve(status));
  });
}

/** What is to be compiled, whoever has asked for it: as many at a time as there are processors. */
const waiting = [];
let compiling = 0;

/** Starts what has the longest source, which takes longest as a rule. */
async function compileNext() {
  if (waiting.length === 0 || compiling === availableParallelism()) return;
  waiting.sort((a, b) => b.size - a.size);
  const { object, command, done } = waiting.shift();
  compiling++;
  if ((await run(command)) !== 0) process.exit(1);
  compiling--;
  writeFileSync(`${object}.cmd`, command.join("\n"));
  done();
  compileNext();
}

/** Objects by their paths: one that several libraries contain is compiled once. */
const made = new Map();

function make(source, object, command) {
  if (!stale(object, command)) return;
  return new Promise((done) => {
    waiting.push({ object, command, size: statSync(source).size, done });
    // When all that is asked for at once has been asked for.
    setImmediate(compileNext);
  });
}

/** Precompiles a header, and returns the flags that make sources of that language take it. */
export async function precompile(compiler, header, output, language, flags) {
  const command = [compiler, "-x", `${language}-header`, ...flags, "-MMD", "-MF", `${output}.d`, header, "-o", output];
  mkdirSync(dirname(output), { recursive: true });
  await make(header, output, command);
  return ["-include-pch", output];
}

/** Compiles each [source, flags] into `folder` and returns the objects. */
export async function compile(compiler, folder, sources) {
  mkdirSync(folder, { recursive: true });
  return Promise.all(
    sources.map(async ([source, flags]) => {
      const object = join(folder, `${relative(root, source).replaceAll("/", "-")}.o`);
      const command = [compiler, ...flags, "-MMD", "-MF", `${object}.d`, "-c", source, "-o", object];
      if (!made.has(object)) made.set(object, make(source, object, command));
      await made.get(object);
      return object;
    }),
  );
}

/** Links; the command is kept as the lines of `record`, where one is named. */
export async function link(command, record) {
  if ((await run(command)) !== 0) process.exit(1);
  if (record) writeFileSync(record, command.join("\n"));
}
