import { readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { prune, write } from "./cache.ts";
import { findClang } from "./clang.ts";
import { type Build, compile, type MetalSource, type Program } from "./compile.ts";
import { codeFolder, coreHeaders, nativeFolder, shimFolder } from "./paths.ts";

/** What the entries of an index may take on disk. */
const INDEX_BYTES = 2 ** 26;

/** A directive that reads files which an entry does not know. */
const READS_FILES = /^[ \t]*#.*\binclude\b(?!\s*<)/m;

interface Stamp {
  path: string;
  /** As native/module_index.cpp makes it. */
  stamp: string;
  changedMs: number;
}

function stampOf(path: string): Stamp | undefined {
  const file = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (!file) return { path, stamp: "-", changedMs: 0 };
  if (!file.isFile()) return undefined;
  return { path, stamp: `${file.ino}.${file.size}.${file.mtimeNs}.${file.ctimeNs}`, changedMs: Number(file.ctimeMs) };
}

const inFolder = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name));

/**
 * Compiles text, and leaves the module's path in `entry` together with what it depends on beside the text: the compiler
 * and this package's own files, stamped.
 */
export function compileIndexed(source: MetalSource, build: Build, entry: string): Program {
  const paths = [...findClang().lookedAt, ...inFolder(codeFolder), ...inFolder(shimFolder)];
  const headers = [join(nativeFolder, "module.h"), join(coreHeaders, "cuda_metal.h")];
  const stamps = [...paths, ...headers].flatMap((path) => stampOf(path) ?? []);
  const program = compile(source, build);
  // A file that has changed since this process loaded it is not the one that has compiled.
  const changed = stamps.some(({ changedMs }) => changedMs >= Math.floor(performance.timeOrigin));
  if (changed || source.text === undefined || READS_FILES.test(source.text)) return program;
  write(entry, (temporary) => {
    writeFileSync(
      temporary,
      `${program.modulePath}\n${stamps.map(({ path, stamp }) => `${stamp} ${path}\n`).join("")}`,
    );
  });
  prune(dirname(entry), INDEX_BYTES);
  return program;
}
