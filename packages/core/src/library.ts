import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync } from "node:zlib";
import type * as api from "./api.ts";
import { binaryMissing, binaryOutdated, binaryRefused, cudaKernels, cudaKernelsMissing, prebuilt } from "./binaries.ts";
import { contractOf } from "./contract.ts";
import { environment } from "./env.ts";
import { MlxtsError, wrongKind } from "./errors.ts";
import { readPlainFile } from "./files.ts";
import { identify, printAsJson } from "./identity.ts";
import type { Kernel } from "./kernel.ts";
import type { LibraryDefinition } from "./library_definition.ts";
import { IncludeError, inlineIncludes } from "./metal_source.ts";
import {
  deviceFailure,
  type KernelFormat,
  type NativeDevice,
  type NativeLibrary,
  native,
  nativeFailure,
} from "./native.ts";

/** A kernel ready to run on a device. */
interface Pipeline {
  readonly id: number;
  readonly maxThreads: number;
}

/** An archive has some MB of PTX at most. */
const MAX_ARCHIVE_BYTES = 1 << 26;
const MAX_PTX_BYTES = 1 << 28;

const PTX_PIECE = 1 << 22;
const [QUOTE, BACKSLASH] = [0x22, 0x5c];

/** PTX that only GPUs of compute capability 9.0 take. */
const ONLY_SM90 = /^\.target sm_90a$/m;

/**
 * What `prebuilds/cuda/<kernel>.ptx.br` holds: JSON, compressed by Brotli, with the PTX of each symbol. It has up to 25 MB, of
 * which a program needs one symbol or two: only their texts are parsed.
 */
class PtxArchive {
  /** `contractOf(kernel, "cuda")` of the declaration that it was built with. */
  readonly contract: number;
  private readonly json: Buffer;
  private readonly found = new Map<string, string>();

  constructor(path: string) {
    const packed = ptxArchives.get(path) ?? readPlainFile(path, MAX_ARCHIVE_BYTES);
    const json = brotliDecompressSync(packed, { maxOutputLength: MAX_PTX_BYTES, chunkSize: PTX_PIECE });
    const begin = /^\{"contract":(\d+),"symbols":\{/.exec(json.toString("latin1", 0, 64));
    if (!begin || !json.toString("latin1", json.length - 2).endsWith("}}")) throw new Error("it is no archive of PTX");
    this.contract = Number(begin[1]);
    this.json = json;
  }

  /** The PTX of a symbol. */
  find(symbol: string): string | undefined {
    const { json } = this;
    const known = this.found.get(symbol);
    if (known !== undefined) return known;
    const name = `${JSON.stringify(symbol)}:`;
    const at = json.indexOf(name);
    if (at < 0) return undefined;
    const begin = at + name.length;
    if (json[begin] !== QUOTE) throw new Error(`its PTX of ${symbol} is no text`);
    // Quotes within a text have a backslash before them, and no PTX ends with one.
    let end = begin;
    do end = json.indexOf('"', end + 1);
    while (end > 0 && json[end - 1] === BACKSLASH);
    const text = JSON.parse(json.toString("utf8", begin, end + 1)) as string;
    this.found.set(symbol, text);
    return text;
  }
}

/** Archives that stand in for files, by path: what tests without a GPU change. @internal */
export const ptxArchives = new Map<string, Uint8Array>();

/** Headers that .metal files of all packages may include. */
const SHARED_HEADERS = fileURLToPath(new URL("../native", import.meta.url));

/**
 * The class behind `Library`. Pipelines are made once and cached. A Metal device takes `native/<kernel>.metal`, each when
 * it is first used, and a CUDA device the PTX of a symbol from `prebuilds/cuda/<kernel>.ptx.br`; a failed compile is tried
 * anew the next time.
 */
export class Library implements api.Library {
  readonly definition: LibraryDefinition;
  readonly #device: NativeDevice;
  readonly #format: KernelFormat;
  readonly #level: string;
  /** Its kernels are those for NVIDIA's GPUs, which are compiled symbol by symbol, also where a simulator runs them. */
  readonly #cuda: boolean;
  /** Each instance is compiled by itself, as PTX is, not with all of its kernel's file. */
  readonly #alone: boolean;
  /** The compiled library, or one for each kernel or symbol. */
  readonly #binary: NativeLibrary | undefined;
  readonly #path: string | undefined;
  readonly #compiled = new Map<string, NativeLibrary>();
  readonly #archives = new Map<string, PtxArchive>();
  /** By kernel, then by variant. */
  readonly #pipelines = new Map<string, Map<string, Pipeline>>();
  /** Kernels whose code was compiled from their declarations as they are. */
  readonly #current = new WeakSet<object>();
  /** Symbols that `has` has not found. */
  readonly #absent = new Set<string>();
  readonly #onCompiled: () => void;

  static {
    identify("Library", Library, (value) => #compiled in value);
    printAsJson(Library);
  }

  constructor(
    definition: LibraryDefinition,
    device: NativeDevice,
    { level, kernelFormat, launchKind }: { level: string; kernelFormat: KernelFormat; launchKind: string },
    onCompiled: () => void,
  ) {
    this.definition = definition;
    this.#device = device;
    this.#onCompiled = onCompiled;
    this.#format = kernelFormat;
    this.#level = level;
    this.#cuda = launchKind === "cuda";
    this.#alone = this.#cuda || environment().simulatedInstances;
    this.#path = kernelFormat === "library" ? this.find(level) : undefined;
    this.#binary = this.#path === undefined ? undefined : this.load(this.#path);
    Object.freeze(this);
  }

  /** The library of the device's level or, where a package has none, of the next one that the processor runs. */
  private find(level: string): string {
    const { name, url } = this.definition;
    const levels = native().cpuLevels();
    const files = levels.slice(levels.indexOf(level)).map((one) => `${name}.${one}.so`);
    const path = files.map((file) => prebuilt(url, file)).find(existsSync);
    if (path === undefined) throw binaryMissing(`the library \`${name}\` has no kernels`, url, files);
    return path;
  }

  private load(path: string): NativeLibrary {
    const { name } = this.definition;
    try {
      return native().openLibrary(this.#device, path, name);
    } catch (error) {
      throw binaryRefused(`the library \`${name}\` cannot load its kernels`, path, error as Error);
    }
  }

  private compile(kernel: string, symbol: string): NativeLibrary {
    const unit = this.#alone ? symbol : kernel;
    const known = this.#compiled.get(unit);
    if (known) return known;
    const text = this.#format === "ptx" ? this.ptx(kernel, symbol) : this.metal(kernel, symbol);
    const library = native().openLibrary(this.#device, text, unit);
    this.#compiled.set(unit, library);
    return library;
  }

  private metal(kernel: string, symbol: string): string {
    const path = fileURLToPath(new URL(`../native/${kernel}.metal`, this.definition.url));
    if (!existsSync(path)) throw this.notFound(symbol);
    const only = this.#alone ? `#pragma metal_sim_only ${symbol}\n` : "";
    if (!this.#cuda) return only + inlineIncludes(path, [SHARED_HEADERS]);
    return `#pragma metal_sim_translation cuda\n${only}${inlineIncludes(path, [SHARED_HEADERS], "cuda")}`;
  }

  /** The PTX that a package's build has made of a kernel, by symbol. */
  private archive(kernel: string, symbol: string): PtxArchive {
    const known = this.#archives.get(kernel);
    if (known) return known;
    const { name, url } = this.definition;
    const path = cudaKernels(url, `${kernel}.ptx.br`);
    if (!ptxArchives.has(path) && !existsSync(path)) {
      if (!existsSync(fileURLToPath(new URL(`../native/${kernel}.metal`, url)))) throw this.notFound(symbol);
      throw cudaKernelsMissing(name, path);
    }
    const archive = this.readable(kernel, () => {
      const read = new PtxArchive(path);
      read.find(symbol);
      return read;
    });
    this.#archives.set(kernel, archive);
    return archive;
  }

  private ptx(kernel: string, symbol: string): string {
    const archive = this.archive(kernel, symbol);
    const text = this.readable(kernel, () => archive.find(symbol));
    if (text === undefined || (ONLY_SM90.test(text) && this.#level !== "sm_90")) throw this.notFound(symbol);
    return text;
  }

  /** What `read` gets of a kernel's archive, which may be damaged. */
  private readable<T>(kernel: string, read: () => T): T {
    try {
      return read();
    } catch (error) {
      const { name, url } = this.definition;
      const path = cudaKernels(url, `${kernel}.ptx.br`);
      throw binaryRefused(`the library \`${name}\` cannot load its kernels`, path, error as Error);
    }
  }

  private notFound(symbol: string, cause?: unknown): MlxtsError {
    const library = this.definition.name;
    const message = `kernel \`${symbol}\` not found in the library \`${library}\``;
    return new MlxtsError("KernelNotFound", message, { name: symbol, library }, cause);
  }

  private failure(symbol: string, error: unknown): unknown {
    if (error instanceof IncludeError) return compilationError(symbol, error.message, error);
    const failure = nativeFailure(error);
    if (failure?.code === "KernelNotFound") return this.notFound(symbol, error);
    if (failure?.code === "ShaderCompilation") return compilationError(symbol, failure.detail, error);
    return deviceFailure("device.library", error);
  }

  /** Refuses code that was compiled from another declaration of the kernel. */
  private checkCurrent(kernel: Kernel, variant: string): void {
    const { name } = kernel;
    if (this.#binary) {
      const built = native().contract(this.#binary, name);
      if (built !== 0 && built !== contractOf(kernel))
        throw binaryOutdated(this.definition, name, this.#path as string);
    } else if (this.archive(name, `${name}_${variant}`).contract !== contractOf(kernel, "cuda"))
      throw binaryOutdated(this.definition, name, cudaKernels(this.definition.url, `${name}.ptx.br`));
  }

  /** @throws MlxtsError `Io` where a library was built from other sources; as `pipeline` */
  pipelineOf(kernel: Kernel, variant: string): Pipeline {
    if (this.#format !== "metal" && !this.#current.has(kernel)) {
      this.checkCurrent(kernel, variant);
      this.#current.add(kernel);
    }
    return this.pipeline(kernel.name, variant);
  }

  /** @throws MlxtsError `KernelNotFound` or `ShaderCompilation` */
  pipeline(kernel: string, variant: string): Pipeline {
    const known = this.#pipelines.get(kernel)?.get(variant);
    if (known !== undefined) return known;
    const symbol = `${kernel}_${variant}`;
    let pipeline: Pipeline;
    try {
      const id = native().pipeline(this.#device, this.#binary ?? this.compile(kernel, symbol), symbol);
      pipeline = { id, maxThreads: native().pipelineThreads(this.#device, id) };
    } catch (error) {
      throw this.failure(symbol, error);
    }
    const variants = this.#pipelines.get(kernel) ?? new Map<string, Pipeline>();
    this.#pipelines.set(kernel, variants.set(variant, pipeline));
    this.#onCompiled();
    return pipeline;
  }

  has(kernel: string, variant: string): boolean {
    if (typeof kernel !== "string") throw wrongKind("library.has", "kernel", "be a string", kernel);
    if (typeof variant !== "string") throw wrongKind("library.has", "variant", "be a string", variant);
    const symbol = `${kernel}_${variant}`;
    if (this.#absent.has(symbol)) return this.#pipelines.get(kernel)?.has(variant) ?? false;
    try {
      this.pipeline(kernel, variant);
      return true;
    } catch (error) {
      if (!(error instanceof MlxtsError && error.code === "KernelNotFound")) throw error;
      this.#absent.add(symbol);
      return false;
    }
  }

  toJSON(): ReturnType<api.Library["toJSON"]> {
    const { name, url } = this.definition;
    return { type: "Library", name, url };
  }
}

function compilationError(name: string, log: string, cause: unknown): MlxtsError {
  const [first] = log.split("\n").filter((line) => /\berror\b/.test(line));
  return new MlxtsError(
    "ShaderCompilation",
    `kernel \`${name}\` does not compile: ${first ?? log}`,
    { name, log },
    cause,
  );
}
