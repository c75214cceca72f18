// Builds what the packages ship for Linux, with Zig's clang: core's addon for x64 and arm64, linked to nothing but glibc
// 2.28 (libc++ is inside), and on x64 also the kernels for arm64. The kernels for this machine's own processor come from
// CMake: they need only a few symbols of an old libc.
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { zig as zigCompiler } from "./build_tools.mjs";
import { addonFlags, addonSources, compile, core, fail, kernelFlags, kernelPackages, link, root } from "./clang.mjs";
import { unoptimized } from "./unoptimized.mjs";

if (process.platform !== "linux") fail("binaries for Linux are built on Linux");
const GLIBC = "2.28";
const ARCHITECTURES = { x64: "x86_64", arm64: "aarch64" };
if (!Object.hasOwn(ARCHITECTURES, process.arch)) fail(`there is no Zig for ${process.arch} here`);

const zig = zigCompiler();
// Zig keeps what it has built of libc++; nothing is written outside the clone.
const cache = join(root, "build", "zig-cache");
Object.assign(process.env, { ZIG_GLOBAL_CACHE_DIR: cache, ZIG_LOCAL_CACHE_DIR: cache });

// What Zig adds for finding faults needs libraries that optimized code does not.
const LEAST = ["-O0", "-fno-stack-protector", "-fno-sanitize=undefined"];
const levels = (arch) => (arch !== process.arch && unoptimized() ? LEAST : ["-O3"]);
// Zig describes what it compiles for debuggers, unless it is told not to; all of that is stripped.
const FLAGS = ["-g0", "-fPIC"];
const target = (arch) => ["c++", "-target", `${ARCHITECTURES[arch]}-linux-gnu.${GLIBC}`, ...levels(arch), ...FLAGS];

/** Links objects and puts the result in its place in one step: a process that has opened the old file keeps it. */
async function image(arch, name, file, objects, flags = []) {
  const folder = join(root, "build", `linux-${arch}`);
  const built = join(folder, file);
  const made = existsSync(built) ? statSync(built).mtimeMs : 0;
  if (objects.some((object) => statSync(object).mtimeMs > made))
    await link([zig, ...target(arch), "-shared", "-s", ...flags, "-o", built, ...objects]);
  const shipped = join(root, "packages", name, "prebuilds", `linux-${arch}`, file);
  if (existsSync(shipped) && readFileSync(shipped).equals(readFileSync(built))) return;
  mkdirSync(join(shipped, ".."), { recursive: true });
  copyFileSync(built, `${shipped}.new`);
  renameSync(`${shipped}.new`, shipped);
}

const compiled = (arch, sources, flags) =>
  compile(
    zig,
    join(root, "build", `linux-${arch}`),
    sources.map((path) => [path, [...target(arch), ...flags]]),
  );

async function addon(arch) {
  const sources = addonSources().filter((path) => path.endsWith(".cpp"));
  const objects = await compiled(arch, sources, addonFlags);
  await image(arch, "core", "core.node", objects, [
    `-Wl,--version-script=${join(core, "exports.map")}`,
    "-Wl,-z,nodelete",
  ]);
}

const kernels = async ({ name, sources }) =>
  image("arm64", name, `${name}.neon.so`, await compiled("arm64", sources, [`-I${core}`, ...kernelFlags]));

await Promise.all([
  ...Object.keys(ARCHITECTURES).map(addon),
  ...(process.arch === "x64" ? kernelPackages().map(kernels) : []),
]);
