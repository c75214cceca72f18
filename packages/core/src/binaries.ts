// Where a package's native binaries lie, and what to say when the one that is needed is not there.
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MlxtsError } from "./errors.ts";

/** The folder name of this machine's binaries, e.g. `linux-x64`. */
export const PLATFORM = `${process.platform}-${process.arch}`;

/** A folder of the package whose module, in `src/` or `dist/`, has that URL. */
const folderOf = (url: string, name: string) => fileURLToPath(new URL(`../${name}`, url));

/** The path of a binary for this machine; `url` is that of a module in the package's `src/` or `dist/`. */
export function prebuilt(url: string, file: string): string {
  return fileURLToPath(new URL(`../prebuilds/${PLATFORM}/${file}`, url));
}

/** The path of a kernel's PTX, which is the same for all platforms. */
export const cudaKernels = (url: string, file: string): string =>
  fileURLToPath(new URL(`../prebuilds/cuda/${file}`, url));

function remedy(url: string): string {
  // A bundler takes the code along and leaves the binaries behind.
  if (!existsSync(folderOf(url, "prebuilds")) && !existsSync(folderOf(url, "native")))
    return "if your code is bundled, mark the package as external (esbuild: --external:@mlxts/*)";
  return "reinstall the package on this machine, or build it in a clone with `npm run native`";
}

/** Binaries of the package that are there, e.g. `linux-arm64/core.node`. */
function present(url: string): string {
  const folder = folderOf(url, "prebuilds");
  const files = existsSync(folder)
    ? readdirSync(folder).flatMap((platform) =>
        readdirSync(`${folder}/${platform}`).map((file) => `${platform}/${file}`),
      )
    : [];
  return files.length > 0 ? `there are only ${files.sort().join(", ")}` : "there are no binaries";
}

/** None of `files` exists. `what` names the package and what it lacks: "@mlxts/core has no native addon". */
export function binaryMissing(what: string, url: string, files: readonly string[]): MlxtsError {
  const paths = files.map((file) => prebuilt(url, file));
  const message = `${what} for ${PLATFORM}: looked for ${paths.join(", ")}; ${present(url)} — ${remedy(url)}`;
  return new MlxtsError("Io", message, { path: paths[0], paths, operation: "load" });
}

/** A package in a clone without its kernels for CUDA. */
export function cudaKernelsMissing(library: string, path: string): MlxtsError {
  const message = `the library \`${library}\` has no kernels for CUDA: looked for ${path} — build them in a clone with \`npm run cuda\`, or open another device`;
  return new MlxtsError("Io", message, { path, operation: "load" });
}

/** The system refused to load a binary. `what` names it: "@mlxts/core cannot load its addon". */
export function binaryRefused(what: string, path: string, error: Error): MlxtsError {
  const message = `${what} ${path} on ${PLATFORM}, Node.js ${process.version}: ${error.message}${libcRemedy()}`;
  return new MlxtsError("Io", message, { path, operation: "load" }, error);
}

/** A kernel was compiled from another declaration than that of the JavaScript beside it: it would use memory that is not its own. */
export function binaryOutdated({ name, url }: { name: string; url: string }, kernel: string, path: string): MlxtsError {
  const what = `the library \`${name}\` has its kernel \`${kernel}\` from other sources than these`;
  return new MlxtsError("Io", `${what}: ${path} — ${remedy(url)}`, { path, operation: "load" });
}

function libcRemedy(): string {
  if (process.platform !== "linux") return "";
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  if (header.glibcVersionRuntime !== undefined) return "";
  return " — this Node.js runs on musl, the packages' binaries on glibc 2.28 and later: use a Node.js for glibc, or build them in a clone with `npm run native`";
}
