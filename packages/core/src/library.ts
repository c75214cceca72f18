import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MlxtsError } from "./errors.ts";
import { type NativeDevice, type NativeLibrary, native, nativeFailure, PLATFORM } from "./native.ts";

/** A package's compiled kernels: where they lie. */
export interface LibraryDefinition {
  readonly name: string;
  /** The package's `prebuilds/` and `native/` folders stand beside the folder of this module. */
  readonly url: string;
}

/** Names a package's kernel library; `url` is the `import.meta.url` of a module in its `src/` or `dist/`. */
export function defineLibrary(name: string, url: string): LibraryDefinition {
  return Object.freeze({ name, url });
}

/** A library opened on a device; pipelines are looked up once and cached. */
export class Library {
  readonly definition: LibraryDefinition;
  private readonly device: NativeDevice;
  private readonly handle: NativeLibrary;
  private readonly pipelines = new Map<string, number>();
  private readonly onCompiled: () => void;

  /** @internal Use `device.library`. */
  constructor(definition: LibraryDefinition, device: NativeDevice, level: string, onCompiled: () => void) {
    this.definition = definition;
    this.device = device;
    this.onCompiled = onCompiled;
    const path = fileURLToPath(new URL(`../prebuilds/${PLATFORM}/${definition.name}.${level}.so`, definition.url));
    if (!existsSync(path)) {
      const remedy = `reinstall @mlxts/${definition.name} on this machine, or in a clone run \`npm run native\``;
      throw new MlxtsError(
        "Io",
        `@mlxts/${definition.name} has no kernels for ${PLATFORM}, level ${level}: looked for ${path} — ${remedy}`,
        { path, operation: "load" },
      );
    }
    try {
      this.handle = native().openLibrary(device, path);
    } catch (error) {
      throw new MlxtsError(
        "Io",
        `cannot load the kernels of @mlxts/${definition.name}: ${(error as Error).message}`,
        { path, operation: "load" },
        error,
      );
    }
  }

  /** @internal */
  pipeline(symbol: string): number {
    const known = this.pipelines.get(symbol);
    if (known !== undefined) return known;
    let id: number;
    try {
      id = native().pipeline(this.device, this.handle, symbol);
    } catch (error) {
      const failure = nativeFailure(error);
      if (failure?.code !== "KernelNotFound") throw error;
      throw new MlxtsError(
        "KernelNotFound",
        `kernel \`${symbol}\` not found in the library of @mlxts/${this.definition.name}`,
        { name: symbol, library: this.definition.name },
        error,
      );
    }
    this.pipelines.set(symbol, id);
    this.onCompiled();
    return id;
  }

  /** Whether the library has a kernel of that symbol. */
  has(symbol: string): boolean {
    try {
      this.pipeline(symbol);
      return true;
    } catch (error) {
      if (error instanceof MlxtsError && error.code === "KernelNotFound") return false;
      throw error;
    }
  }
}
