// Builds core's addon with the Metal device over the simulated Metal of packages/metal-sim, for MLXTS_METAL_SIM=1.
// `--sanitize LIST` builds with sanitizers, `--coverage` counts lines; both into build/metal-sim-*.
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import {
  addonFlags,
  addonSources,
  compile,
  core,
  fail,
  files,
  framework,
  link,
  metalFlags,
  need,
  objcFlags,
  precompile,
  root,
} from "./clang.mjs";

const PACKAGES = "clang-19 libobjc-12-dev";
const { values } = parseArgs({ options: { sanitize: { type: "string" }, coverage: { type: "boolean" } } });
if (process.platform !== "linux") fail("the Metal simulator is built on Linux; on macOS core has the real device");
need("clang++-19", PACKAGES);

/** Where GCC keeps its Objective-C headers and runtime. */
function objcRuntime() {
  const base = `/usr/lib/gcc/${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu`;
  const versions = existsSync(base) ? readdirSync(base).sort((a, b) => Number(b) - Number(a)) : [];
  const found = versions.find((version) => existsSync(join(base, version, "include", "objc", "objc.h")));
  return found ? join(base, found) : fail(`no Objective-C runtime in ${base} — apt-get install ${PACKAGES}`);
}

const runtime = objcRuntime();
const variant = values.sanitize ? "-sanitize" : values.coverage ? "-coverage" : "";
const folder = join(root, "build", `metal-sim${variant}`);
const special = [
  ...(values.sanitize
    ? [`-fsanitize=${values.sanitize}`, "-fno-sanitize=function,vptr", "-fno-sanitize-recover=all", "-shared-libsan"]
    : []),
  ...(values.coverage ? ["-fprofile-instr-generate", "-fcoverage-mapping"] : []),
];
// Counters in a file that is mapped while they count (LLVM_PROFILE_FILE=%c…): test workers end without saving.
const continuous = values.coverage ? ["-mllvm", "-runtime-counter-relocation"] : [];
const engine = join(root, "packages", "metal-sim", "native");
// Tests run it: reports name lines, and what it runs takes less time than optimizing it.
const plain = [...addonFlags, ...metalFlags, "-O1", "-gline-tables-only", "-fPIC"];
const common = [...plain, ...special, ...continuous];
const objc = [
  ...common,
  ...objcFlags,
  "-fobjc-runtime=gcc",
  "-fconstant-string-class=NSConstantString",
  "-Wno-nullability-completeness",
  `-I${join(framework, "include")}`,
  `-isystem${join(runtime, "include")}`,
  `-DMETAL_SIM_COMMAND="${join(root, "packages", "metal-sim", "bin", "metal-sim.mjs")}"`,
  `-DMETAL_SIM_INDEX="${join(root, "packages", "metal-sim", "build", "index")}"`,
];
const withHeader = async (name, of, language, flags) => {
  const output = join(folder, `${name}.pch`);
  return [...flags, ...(await precompile("clang++-19", join(of, "precompiled.h"), output, language, flags))];
};
const engineHeader = withHeader("engine", core, "c++", plain);
const [engineFlags, addonCpp, addonObjc] = await Promise.all([
  engineHeader,
  variant ? withHeader("addon", core, "c++", common) : engineHeader,
  withHeader("addon_objc", framework, "objective-c++", objc),
]);
const flagsOf = (path) => [path, path.endsWith(".mm") ? addonObjc : addonCpp];

// The kernels' interpreter is the simulator's own business: never sanitized, never counted.
const simulated = await compile("clang++-19", folder, [
  ...files(engine, ".cpp")
    .filter((path) => !path.endsWith("_main.cpp"))
    .map((path) => [path, engineFlags]),
  ...[...files(framework, ".mm"), join(framework, "personality.cpp")].map(flagsOf),
]);
const libraries = [`-L${runtime}`, "-lobjc", "-lpthread", "-ldl"];

const output = variant ? folder : join(root, "packages", "core", "prebuilds", `linux-${process.arch}`);
mkdirSync(output, { recursive: true });
// Objective-C classes cannot be unloaded, so the addon stays when the worker that loaded it ends.
const addon = [
  "clang++-19",
  ...special,
  "-shared",
  "-Wl,-Bsymbolic,-z,nodelete",
  "-o",
  join(output, "core-metal-sim.node"),
  ...(await compile("clang++-19", folder, addonSources().map(flagsOf))),
  ...simulated,
  ...libraries,
];
// metal-host's mutants are linked in the same way.
await link(addon, join(folder, "core-metal-sim.link"));
for (const program of files(join(framework, "test"), ".mm"))
  await link([
    "clang++-19",
    ...special,
    "-o",
    join(folder, basename(program, ".mm")),
    ...(await compile("clang++-19", folder, [flagsOf(program)])),
    ...simulated,
    ...libraries,
  ]);
