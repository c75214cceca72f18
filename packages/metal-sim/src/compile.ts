import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { make, prune } from "./cache.ts";
import { type Clang, findClang, runClang } from "./clang.ts";
import { MetalSimError } from "./errors.ts";
import { libraryHint } from "./library_names.ts";
import { cacheFolder, coreHeaders, nativeFolder, shimFolder } from "./paths.ts";
import type { Kernel } from "./reflect.ts";
import {
  type Translation,
  translate,
  translateForCuda,
  translateForLint,
  translateForSimulatedCuda,
} from "./translate.ts";

/** `.metal` text and what to call it. `#include "…"` is looked up beside `path`, then in `includeFolders`. */
export interface MetalSource {
  path: string;
  /** Default: the contents of `path`. */
  text?: string;
  /** Macros, as `-D` sets them. */
  defines?: Readonly<Record<string, string>>;
  /** Where else headers lie, as `-I` sets it. */
  includeFolders?: readonly string[];
}

export type Build = "fast" | "check" | "coverage";

/** A compiled module, ready to be run any number of times. */
export interface Program {
  /** The shared library. */
  modulePath: string;
  build: Build;
  kernels: Kernel[];
}

function textOf({ path, text }: MetalSource): string {
  if (text !== undefined) return text;
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new MetalSimError("Io", `${path}: ${(error as Error).message}`);
  }
}

/** A header that is not found may lie in another package. */
const withIncludeRemedy = (stderr: string) =>
  /file not found/.test(stderr)
    ? `${stderr}name the header's folder with -I (includeFolders); mlxts' own lie in node_modules/@mlxts/core/native\n`
    : stderr;

/** Expands includes and macros as Metal's compiler would, with none of the host's own definitions. */
function preprocess(clang: Clang, source: MetalSource, build?: Build, simulated = true): string {
  const defines = Object.entries({
    __METAL_VERSION__: "310",
    __METAL__: "1",
    __METAL_MACOS__: "1",
    ...(simulated && { __METAL_SIM__: "1" }),
    ...(build === "check" && { __METAL_SIM_CHECK__: "1" }),
    ...source.defines,
  });
  const args = ["-E", "-x", "c++", "-std=c++14", "-undef", "-nostdinc", "-nostdinc++"];
  args.push("-isystem", join(shimFolder, "include"), "-iquote", dirname(source.path));
  args.push(...(source.includeFolders ?? []).flatMap((folder) => ["-I", folder]));
  args.push(...defines.map(([name, value]) => `-D${name}=${value}`), "-");
  const result = runClang(clang, args, `#line 1 ${JSON.stringify(source.path)}\n${textOf(source)}`);
  if (!result.ok) throw new MetalSimError("Compile", withIncludeRemedy(result.stderr));
  return result.stdout;
}

/** compute_80: the oldest GPUs that the instructions of `cuda_machine.h` are on. */
const ARCHITECTURE = 80;
/** What asks for the CUDA translation of a text: core puts it in front (MLXTS_METAL_SIM_TRANSLATION=cuda). */
const AS_CUDA = /^#pragma metal_sim_translation cuda$/m;

const cudaShim = join(shimFolder, "cuda");
/** Core's header for CUDA on the simulator's machine. */
const CUDA_FLAGS = ["-std=c++17", "-isystem", cudaShim, "-isystem", coreHeaders];

const forCuda = (source: MetalSource, architecture: number): MetalSource => ({
  ...source,
  defines: { ...source.defines, MLXTS_CUDA: String(architecture) },
});

/** The text that is compiled for the simulator, with its flags and the headers that it takes. */
function translated(
  clang: Clang,
  source: MetalSource,
  build: Build,
): Translation & { flags: string[]; shim: string[] } {
  const shim = [...contents(shimFolder, /\.h$/), ...contents(nativeFolder, /^module\.h$/)];
  if (!AS_CUDA.test(textOf(source))) return { ...translate(preprocess(clang, source, build)), flags: [], shim };
  const translation = translateForSimulatedCuda(preprocess(clang, forCuda(source, ARCHITECTURE), build, false));
  shim.push(...contents(cudaShim, /\.h$/), ...contents(coreHeaders, /^cuda_metal\.h$/));
  return { ...translation, flags: CUDA_FLAGS, shim };
}

const FLAGS = [
  ...["-x", "c++", "-std=c++14", "-shared", "-fPIC", "-fvisibility=hidden", "-nostdinc++", "-fsigned-char", "-w"],
  // f32 is IEEE: no contraction, no reassociation, denormals kept. half and bfloat round after every operation.
  ...["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
  ...["-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none"],
  ...["-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fwrapv", "-fno-threadsafe-statics"],
  // A loop that never ends is seen to.
  "-fno-finite-loops",
  // A fifth to a third of the compiler's time goes to this pass, and kernels run about as fast without it.
  ...["-mllvm", "-disable-lsr"],
  ...[
    "-gdwarf-4",
    "-gline-tables-only",
    "-gno-column-info",
    "-fdebug-compilation-dir=.",
    "-fstack-clash-protection",
    "-fno-stack-protector",
  ],
];

const BUILDS: Record<Build, readonly string[]> = {
  fast: ["-O1"],
  check: [
    // No vectors and no merged branches: each access keeps its own size and line.
    ...["-O1", "-fno-vectorize", "-fno-slp-vectorize", "-DMETAL_SIM_CHECK", "-fsanitize=thread"],
    ...["-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-atomics=0"],
    ...["-mllvm", "-tsan-instrument-read-before-write=1"],
    ...["-mllvm", "-simplifycfg-sink-common=false", "-mllvm", "-simplifycfg-hoist-common=false"],
    ...["-mllvm", "-simplifycfg-merge-cond-stores=false"],
    ...["-fsanitize=array-bounds,alignment,integer-divide-by-zero,shift-exponent"],
    "-fsanitize-recover=array-bounds,alignment,integer-divide-by-zero,shift-exponent",
  ],
  coverage: ["-O0", "-DMETAL_SIM_COVERAGE", "-fsanitize-coverage=inline-bool-flag,pc-table,no-prune"],
};

/** The level that every x86-64 processor of the last ten years has: half conversions and fused multiply-add. */
function machineFlags(): string[] {
  if (process.arch !== "x64") return [];
  let flags = "";
  try {
    flags = readFileSync("/proc/cpuinfo", "utf8");
  } catch {
    return [];
  }
  return /\bavx2\b/.test(flags) && /\bfma\b/.test(flags) && /\bf16c\b/.test(flags) ? ["-march=x86-64-v3"] : [];
}

const hash = (parts: readonly string[]) => {
  const digest = createHash("sha256");
  for (const part of parts) digest.update(`${part.length}:`).update(part);
  return digest.digest("hex").slice(0, 32);
};

const contents = (folder: string, pattern: RegExp) =>
  readdirSync(folder)
    .filter((name) => pattern.test(name))
    .sort()
    .map((name) => name + readFileSync(join(folder, name), "utf8"));

/** The compiler's log, with what it cannot know. */
function compileError(stderr: string): MetalSimError {
  if (/error in backend|PLEASE submit a bug report/.test(stderr)) {
    const hint = "the compiler cannot take this text; mixing half and bfloat in one expression is a known cause";
    return new MetalSimError("Compile", `${hint}\n${stderr.split("\n")[0]}`);
  }
  const lines = stderr.split("\n").map((line) => {
    const hint = libraryHint(line);
    return hint ? `${line} (${hint})` : line;
  });
  return new MetalSimError("Compile", lines.join("\n"));
}

/** What compiled modules and engines may take on disk. */
const MODULE_BYTES = 2 ** 30;
const ENGINE_BYTES = 2 ** 25;

/**
 * Compiles `.metal` text for the simulator, or finds it compiled.
 * @throws MetalSimError `NoCompiler`, `Untranslatable` or `Compile`
 */
export function compile(source: MetalSource, build: Build = "fast"): Program {
  const clang = findClang();
  const { text, kernels, shim, ...more } = translated(clang, source, build);
  const flags = [...FLAGS, ...BUILDS[build], ...machineFlags(), ...more.flags, "-isystem", shimFolder];
  const name = `${hash([text, clang.version, flags.join("\0"), ...shim])}.so`;
  const folder = join(cacheFolder(), "modules");
  const modulePath = make(join(folder, name), (temporary) => {
    const result = runClang(clang, [...flags, "-o", temporary, "-", "-lm"], text);
    if (!result.ok) throw compileError(result.stderr);
    prune(folder, MODULE_BYTES);
  });
  return { modulePath, build, kernels };
}

/** The translated text, for whoever wants to read or compile it. */
export function translateSource(source: MetalSource): { text: string; kernels: Kernel[] } {
  return translate(preprocess(findClang(), source));
}

/**
 * The text as CUDA C++, without entry functions (`cudaEntry`): for NVRTC with core's `cuda_metal.h`. `architecture` is the
 * macro MLXTS_CUDA, 80 for compute_80.
 */
export function translateSourceForCuda(source: MetalSource, architecture = ARCHITECTURE): Translation {
  return translateForCuda(preprocess(findClang(), forCuda(source, architecture), undefined, false));
}

/** What the compiler says about the text, as C++ for the simulator and as C++ for OpenCL. */
export function diagnose(source: MetalSource) {
  const clang = findClang();
  const preprocessed = preprocess(clang, source);
  const { text } = translate(preprocessed);
  const { text: openclText, threadgroupVariables } = translateForLint(preprocessed);
  const log = (args: readonly string[], input: string) =>
    runClang(
      clang,
      [...args, "-fsyntax-only", "-fno-caret-diagnostics", "-ferror-limit=0", "-isystem", shimFolder, "-"],
      input,
    ).stderr;
  const flags = FLAGS.filter((flag) => flag !== "-w" && flag !== "-shared");
  const opencl = [
    ...["-x", "clcpp", "-cl-std=CLC++2021", "-target", "spir64", "-DMETAL_SIM_LINT", "-cl-no-stdinc"],
    ...["-cl-single-precision-constant", "-Wno-everything", "-fno-elide-type"],
  ];
  const features = "-__opencl_c_generic_address_space,-__opencl_c_pipes,-__opencl_c_device_enqueue";
  return {
    threadgroupVariables,
    cpp: log(
      [
        ...flags,
        "-Wall",
        "-Wextra",
        "-Wno-unknown-pragmas",
        "-Wno-duplicate-decl-specifier",
        "-Wno-unused-const-variable",
        ...machineFlags(),
      ],
      text,
    ),
    opencl: log(opencl, openclText),
    /** Here a pointer without address space points to the thread's own memory only. */
    openclPrivate: log(
      [...opencl, "-Xclang", `-cl-ext=${features},-__opencl_c_program_scope_global_variables`],
      openclText,
    ),
  };
}

/** The engine as a shared library and as the process that runs kernels, built when first needed. */
export function engine(): { library: string; runner: string } {
  const clang = findClang();
  const sources = readdirSync(nativeFolder).filter((name) => name.endsWith(".cpp"));
  const key = hash([clang.version, ...contents(nativeFolder, /\.(cpp|h)$/)]);
  const folder = join(cacheFolder(), "engines");
  const flags = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"];
  const parts = sources.filter((name) => name !== "run_main.cpp").map((name) => join(nativeFolder, name));
  const link = (temporary: string, args: readonly string[]) => {
    const result = runClang(clang, [...flags, ...args, "-o", temporary, "-ldl"]);
    if (!result.ok) throw new MetalSimError("Compile", `the engine does not compile:\n${result.stderr}`);
    prune(folder, ENGINE_BYTES);
  };
  const library = make(join(folder, `libmetal_sim-${key}.so`), (temporary) => link(temporary, ["-shared", ...parts]));
  const runner = make(join(folder, `metal-sim-run-${key}`), (temporary) =>
    link(temporary, [join(nativeFolder, "run_main.cpp"), library, `-Wl,-rpath,${folder}`]),
  );
  return { library, runner };
}
