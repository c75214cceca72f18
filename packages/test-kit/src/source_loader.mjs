// What loads the packages' TypeScript sources (source_hooks.mjs): esbuild makes JavaScript of each, which is kept in build/.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const folder = fileURLToPath(new URL("../../../build/javascript/", import.meta.url));
const loader = readFileSync(fileURLToPath(import.meta.url));

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** Several processes may do the same at once, so the file comes into being whole. A clone may not be writable. */
function keep(path, code) {
  try {
    mkdirSync(folder, { recursive: true });
    const whole = `${path}.${process.pid}`;
    writeFileSync(whole, code);
    renameSync(whole, path);
  } catch {}
}

function javascript(path) {
  const source = readFileSync(path, "utf8");
  const name = basename(path);
  const hash = createHash("sha256").update(loader).update(name).update(source).digest("hex");
  const kept = join(folder, `${hash}.mjs`);
  const before = read(kept);
  if (before !== undefined) return before;
  // Loaded only where it is needed: it takes longer than a file that is kept.
  const { code } = require("esbuild").transformSync(source, {
    loader: extname(name).slice(1),
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    sourcesContent: false,
    sourcefile: name,
  });
  keep(kept, code);
  return code;
}

export const resolve = (specifier, context, next) =>
  next(specifier, { ...context, conditions: [...context.conditions, "mlxts-source"] });

/** JSON too, which sources import without an attribute, as bundlers allow. */
export const load = (url, context, next) =>
  /^file:.*\.(ts|json)$/.test(url)
    ? { format: "module", source: javascript(fileURLToPath(url)), shortCircuit: true }
    : next(url, context);
