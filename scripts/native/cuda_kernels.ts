// Every Metal kernel of the packages as PTX: prebuilds/cuda/<kernel>.ptx.br, JSON with the PTX of each symbol by itself,
// since a driver compiles only what is used.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import { contractOf } from "../../packages/core/src/contract.ts";
import type { Kernel } from "../../packages/core/src/index.ts";
import { runLaunchRule } from "../../packages/core/src/kernel.ts";
import { inlineIncludes } from "../../packages/core/src/metal_source.ts";
import { cudaEntry, translateSourceForCuda } from "../../packages/metal-sim/src/index.ts";
import { root } from "../check/packages.ts";
import { earlyFaults } from "./early_reads.ts";
import { Compilers, headers, install, VERSION } from "./nvrtc.mjs";
import { entriesOf } from "./ptx_symbols.ts";
import { unoptimized } from "./unoptimized.mjs";

/** A kernel's text, its declaration, and where its PTX goes. */
export interface CudaKernel {
  /** From the repository's root: `packages/norms/native/rms_norm.metal`. */
  path: string;
  kernel: Kernel;
  output: string;
}

/** What the build did. */
export interface CudaBuild {
  compiled: number;
  upToDate: number;
  symbols: number;
  bytes: number;
}

/** Contraction would make equal formulas unequal; kernels say `fma` where they mean it. */
const OPTIONS = ["--std=c++17", "--device-as-default-execution-space", "--fmad=false"];
/** Half the time of `--device-debug`, which also leaves optimizing out, but describes each line for debuggers. */
const UNOPTIMIZED = unoptimized() && !existsSync("/proc/driver/nvidia") ? ["--Ofast-compile=max"] : [];
/** Of a kernel with early reads, which show only in optimized PTX, one symbol of so many is optimized all the same. */
const CHECKED = 9;
/** The stand-in driver of core's tests is given the PTX of their kernels. */
const isOfTests = (path: string) => path.startsWith("packages/core/");
const ARCHITECTURE = 80;
/** Whom a symbol is compiled for: every GPU that kernels run on, or those of compute capability 9.0 alone. */
const architectureOf = ({ name, sm90a }: Kernel, symbol: string) =>
  sm90a.includes(symbol.slice(name.length + 1)) ? "90a" : String(ARCHITECTURE);
const at = (...path: string[]) => join(root, ...path);

/** Folders with declarations, with `.metal` texts and for PTX, by a package's name; core has kernels of its tests only. */
const foldersOf = (name: string) =>
  name === "core"
    ? { declarations: "packages/core/test/kernels", texts: "packages/core/test/native", home: "packages/core/test" }
    : { declarations: `packages/${name}/src`, texts: `packages/${name}/native`, home: `packages/${name}` };

const metalTextsIn = (folder: string) =>
  existsSync(at(folder)) ? readdirSync(at(folder)).filter((file) => file.endsWith(".metal")) : [];

/** The packages that have kernels for GPUs. */
export const cudaPackages = (): string[] =>
  readdirSync(at("packages")).filter((name) => name !== "metal-sim" && metalTextsIn(foldersOf(name).texts).length > 0);

const isKernel = (value: unknown): value is Kernel =>
  value !== null && typeof value === "object" && "bufferNames" in value && "launch" in value;

async function declarationsIn(folder: string): Promise<Map<string, Kernel>> {
  const found = new Map<string, Kernel>();
  for (const file of readdirSync(at(folder)).filter((each) => each.endsWith(".ts"))) {
    const module = (await import(pathToFileURL(at(folder, file)).href)) as object;
    for (const value of Object.values(module)) if (isKernel(value)) found.set(value.name, value);
  }
  return found;
}

/** The kernels of some packages. */
export async function cudaKernels(packages: readonly string[]): Promise<CudaKernel[]> {
  const found: CudaKernel[] = [];
  for (const name of packages) {
    const { declarations, texts, home } = foldersOf(name);
    const declared = await declarationsIn(declarations);
    for (const file of metalTextsIn(texts)) {
      const stem = basename(file, ".metal");
      const kernel = declared.get(stem);
      if (kernel === undefined)
        throw new Error(`${texts}/${file}: no kernel \`${stem}\` is declared in ${declarations}`);
      found.push({ path: `${texts}/${file}`, kernel, output: at(home, "prebuilds", "cuda", `${stem}.ptx.br`) });
    }
  }
  return found;
}

/** Numbers of the magnitudes that sizes have, the same for the same seed and name; some sizes are a yes or no. */
function madeUp(seed: number, questions: ReadonlySet<string>): object {
  const magnitudes = [1, 2, 4, 8, 16, 32, 64, 128, 200, 256, 512, 1000, 2048, 5000, 20_000, 150_000];
  return new Proxy(
    {},
    {
      get: (_, name) => {
        if (typeof name !== "string") return undefined;
        const bytes = createHash("md5").update(`${seed} ${name}`).digest();
        if (questions.has(name)) return bytes.readUInt8(2) % 2 === 0;
        const most = magnitudes[(bytes[0] as number) % magnitudes.length] as number;
        // Sizes are whole magnitudes as often as not.
        return bytes.readUInt8(1) % 2 === 0 ? most : 1 + (bytes.readUInt32LE(4) % most);
      },
    },
  );
}

/** What an NVIDIA GPU of any generation gives a threadgroup. */
const LIMITS = {
  maxThreadsPerThreadgroup: 1024,
  maxThreadgroupBytes: 99 * 1024,
  threads: 32,
  maxBufferBytes: 2 ** 40,
  maxThreadgroupsPerAxis: [2 ** 31 - 1, 65_535, 65_535],
};
const TRIALS = 600;

/** The most threads that a kernel's launch rule gives a threadgroup: what its code is compiled for. */
export function mostThreads(kernel: Kernel): number {
  if (kernel.mostThreads !== undefined) return kernel.mostThreads;
  const questions = new Set<string>();
  let most = 0;
  for (let seed = 0; seed < TRIALS; seed++) {
    try {
      const device = { kind: "cuda", gpu: true, limits: LIMITS as never };
      const { given } = runLaunchRule("mostThreads", kernel, madeUp(seed, questions), device);
      const { threadsPerThreadgroup: [x, y, z] = [1, 1, 1] } = given as { threadsPerThreadgroup?: number[] };
      const threads = (x as number) * (y as number) * (z as number);
      if (Number.isInteger(threads)) most = Math.max(most, threads);
    } catch (error) {
      // Sizes that the kernel refuses, some of them for their kind.
      const { rule, argument } = (error as { fault?: { rule?: string; argument?: string } }).fault ?? {};
      if (rule === "be a boolean" && argument !== undefined) questions.add(argument);
    }
  }
  if (most === 0) throw new Error(`${kernel.name}: the launch rule takes no made-up sizes: declare \`mostThreads\``);
  return Math.min(1024, Math.ceil(most / 32) * 32);
}

/** The translated text of a kernel, and what follows it for each symbol. */
interface Texts {
  text: string;
  entries: Map<string, string>;
}

function textsOf({ path, kernel }: CudaKernel): Texts {
  const source = inlineIncludes(at(path), [at("packages", "core", "native")], "cuda");
  const { text, kernels } = translateSourceForCuda({ path: at(path), text: source }, ARCHITECTURE);
  const threads = mostThreads(kernel);
  return { text, entries: new Map(kernels.map((each) => [each.name, cudaEntry(each, each.maxThreads ?? threads)])) };
}

/** The symbols that a kernel's archive has, without compiling it. */
export const cudaSymbols = (one: CudaKernel): string[] => [...textsOf(one).entries.keys()];

/** The text of a symbol as far as drivers' stand-ins read it. */
export const emptyPtx = ({ kernel }: CudaKernel, symbol: string): string =>
  `.target sm_${architectureOf(kernel, symbol)}\n.visible .entry mlxts_${symbol}()\n{\n\tret;\n}\n`;

/** Places of the buffers that a kernel reads before others have ended. */
const earlyBuffers = ({ bufferNames, early }: Kernel) =>
  new Set(bufferNames.flatMap((name, i) => (early.includes(name) ? [i] : [])));

const hash = (parts: readonly string[]) => {
  const digest = createHash("sha256");
  for (const part of parts) digest.update(`${part.length}:`).update(part);
  return digest.digest("hex");
};

const COMPRESSION = {
  params: {
    [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
    [constants.BROTLI_PARAM_QUALITY]: UNOPTIMIZED.length > 0 ? 3 : 9,
    [constants.BROTLI_PARAM_LGWIN]: 24,
  },
};

/** What an archive was made from. */
const stampOf = (output: string) => join(root, "build", "cuda", `${relative(root, output)}.hash`);

/** The PTX without the comments of its head. */
const bare = (ptx: string) => ptx.replace(/^\/\/.*\n/gm, "").replace(/\n{2,}/g, "\n");

/** One NVRTC compiles with optimization or without: after a text without, others come out differently. */
interface Pools {
  optimized: Compilers;
  unoptimized: Compilers;
}

/** The PTX of a text that has these symbols. */
async function compileText(one: CudaKernel, names: readonly string[], text: string, pools: Pools, optimized: boolean) {
  const [symbol] = names as [string];
  const architecture = `--gpu-architecture=compute_${architectureOf(one.kernel, symbol)}`;
  const options = [architecture, ...OPTIONS, ...(optimized ? [] : UNOPTIMIZED)];
  try {
    const pool = pools[optimized ? "optimized" : "unoptimized"];
    return bare(await pool.compile({ name: `${symbol}.cu`, text, options }));
  } catch (error) {
    throw new Error(`${one.path}: ${names.join(", ")}: this does not compile\n${(error as Error).message}`);
  }
}

/** The optimized PTX of one symbol, which reads early only what it may. */
async function compileOptimized(one: CudaKernel, { text, entries }: Texts, symbol: string, pools: Pools) {
  const ptx = await compileText(one, [symbol], text + entries.get(symbol), pools, true);
  const [fault] = earlyFaults(ptx, earlyBuffers(one.kernel));
  if (fault !== undefined) throw new Error(`${one.path}: ${symbol}: before it waits for other kernels, ${fault}`);
  return [symbol, ptx] as const;
}

/** The PTX of symbols that are not optimized: those of an architecture at once, which takes a fraction of the time. */
async function compileUnoptimized(one: CudaKernel, { text, entries }: Texts, symbols: readonly string[], pools: Pools) {
  const compiled = new Map<string, string>();
  const architecture = (symbol: string) => architectureOf(one.kernel, symbol);
  for (const each of new Set(symbols.map(architecture))) {
    const names = symbols.filter((symbol) => architecture(symbol) === each);
    const all = text + names.map((symbol) => entries.get(symbol)).join("");
    const found = entriesOf(await compileText(one, names, all, pools, false));
    for (const symbol of names) {
      const ptx = found.get(`mlxts_${symbol}`);
      if (ptx === undefined) throw new Error(`${one.path}: ${symbol}: no entry in what was compiled`);
      compiled.set(symbol, ptx);
    }
  }
  return compiled;
}

async function build(one: CudaKernel, pools: Pools, always: string): Promise<number> {
  const contract = contractOf(one.kernel, "cuda");
  const texts = textsOf(one);
  const symbols = [...texts.entries.keys()];
  const key = hash([always, String(contract), ...one.kernel.sm90a, texts.text, ...[...texts.entries].flat()]);
  const stamp = stampOf(one.output);
  if (existsSync(one.output) && existsSync(stamp) && readFileSync(stamp, "utf8") === key) return 0;
  const early = earlyBuffers(one.kernel).size > 0;
  const all = UNOPTIMIZED.length === 0 || isOfTests(one.path);
  const optimized = symbols.filter((_, index) => all || (early && index % CHECKED === 0));
  const others = symbols.filter((symbol) => !optimized.includes(symbol));
  const compiled = new Map([
    ...(await Promise.all(optimized.map((symbol) => compileOptimized(one, texts, symbol, pools)))),
    ...(await compileUnoptimized(one, texts, others, pools)),
  ]);
  const json = JSON.stringify({
    contract,
    symbols: Object.fromEntries(symbols.map((each) => [each, compiled.get(each)])),
  });
  for (const path of [one.output, stamp]) mkdirSync(dirname(path), { recursive: true });
  const temporary = `${one.output}.${process.pid}`;
  writeFileSync(temporary, brotliCompressSync(json, COMPRESSION));
  renameSync(temporary, one.output);
  writeFileSync(stamp, key);
  return symbols.length;
}

/** Compiles what has changed since the last time, of these packages; throws one sentence where NVRTC cannot be had. */
export async function buildCuda(packages: readonly string[] = cudaPackages()): Promise<CudaBuild> {
  install();
  const unknown = packages.find((name) => !cudaPackages().includes(name));
  if (unknown !== undefined) throw new Error(`packages/${unknown} has no kernels for GPUs`);
  const always = hash([VERSION, ...OPTIONS, ...UNOPTIMIZED, ...headers.map((path) => readFileSync(path, "utf8"))]);
  const kernels = await cudaKernels(packages);
  // What takes longest as a rule begins first.
  kernels.sort((a, b) => b.kernel.variants.length - a.kernel.variants.length);
  const pools = { optimized: new Compilers(), unoptimized: new Compilers() };
  try {
    const symbols = await Promise.all(kernels.map((one) => build(one, pools, always)));
    const compiled = symbols.filter((count) => count > 0).length;
    return {
      compiled,
      upToDate: kernels.length - compiled,
      symbols: symbols.reduce((sum, count) => sum + count, 0),
      bytes: kernels.reduce((sum, { output }) => sum + readFileSync(output).length, 0),
    };
  } finally {
    for (const pool of Object.values(pools)) pool.close();
  }
}
