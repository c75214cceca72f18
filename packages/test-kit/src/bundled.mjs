// Programs of this repository start four times as fast from one bundle of the TypeScript sources as from a file for each
// module (source_hooks.mjs). A bundle is kept in build/ and made anew when one of its sources has changed.
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const HERE = fileURLToPath(import.meta.url);
/** A process may import parts of a bundle as long as it runs: for a day, none is removed. */
const IN_USE_MS = 86_400_000;

/** Size and time of the last change of a file. */
function stampOf(path) {
  const { size, mtimeMs } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return `${size} ${mtimeMs}`;
}

/** What was made before, where its sources are as they were. */
function current(index) {
  try {
    const { folder, stamps } = JSON.parse(readFileSync(index, "utf8"));
    return stamps.every(([path, stamp]) => stampOf(path) === stamp) ? folder : undefined;
  } catch {
    return undefined;
  }
}

/** The modules that packages export, by the paths that a bundle's folder has for them: `import("@mlxts/nn/bench")` finds them. */
function packageModules() {
  const modules = {};
  const manifests = {};
  for (const name of readdirSync(join(root, "packages"))) {
    const folder = join(root, "packages", name);
    const { name: full, exports = {} } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const sources = Object.entries(exports).filter(([, each]) => each["mlxts-source"]);
    if (sources.length === 0) continue;
    const output = (key) => (key === "." ? "index" : key.slice(2));
    for (const [key, each] of sources)
      modules[`node_modules/${full}/${output(key)}`] = join(folder, each["mlxts-source"]);
    manifests[full] = Object.fromEntries(sources.map(([key]) => [key, `./${output(key)}.js`]));
  }
  return { modules, manifests };
}

/** Modules find their package's files from their own, so each gets the URL of its source in place of the bundle's. */
const SOURCE_URL = "sourceUrlOfModule";
const sourceUrls = {
  name: "source URLs",
  setup({ onLoad }) {
    onLoad({ filter: /\.(ts|m?js)$/ }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      if (!text.includes("import.meta.url")) return undefined;
      const url = JSON.stringify(pathToFileURL(path).href);
      return { contents: `const ${SOURCE_URL} = ${url};${text}`, loader: path.endsWith(".ts") ? "ts" : "js" };
    });
  },
};

/** A clone may not be writable: its programs then run from their sources, module by module. */
function writable(folder) {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

async function make(main, packages, kept, index) {
  const { build } = await import("esbuild");
  const folder = join(kept, `${Date.now()}-${process.pid}`);
  const { modules, manifests } = packages ? packageModules() : {};
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: { main, ...modules },
    outdir: folder,
    chunkNames: "chunks/[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    conditions: ["mlxts-source"],
    plugins: [sourceUrls],
    define: { "import.meta.url": SOURCE_URL },
    // Packages in CommonJS call `require` for Node's own modules.
    banner: {
      js: 'import { createRequire as ofNode } from "node:module"; globalThis.require ??= ofNode(import.meta.url);',
    },
    sourcemap: "linked",
    sourcesContent: false,
    metafile: true,
    logLevel: "error",
  });
  for (const [name, exports] of Object.entries(manifests ?? {}))
    writeFileSync(join(folder, "node_modules", name, "package.json"), JSON.stringify({ type: "module", exports }));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  const inputs = Object.keys(metafile.inputs).map((path) => join(root, path));
  const manifestPaths = readdirSync(join(root, "packages")).map((name) => join(root, "packages", name, "package.json"));
  const stamps = [HERE, ...manifestPaths, ...inputs].map((path) => [path, stampOf(path)]);
  const whole = `${index}.${process.pid}`;
  writeFileSync(whole, JSON.stringify({ folder, stamps }));
  renameSync(whole, index);
  for (const name of readdirSync(kept)) {
    const made = Number.parseInt(name, 10);
    if (made < Date.now() - IN_USE_MS && join(kept, name) !== folder) rmSync(join(kept, name), { recursive: true });
  }
  return folder;
}

/**
 * The URL of a bundle of a source file, which is named by its path from the repository's root. `packages`: for programs that
 * import packages whose names are known only when they run.
 */
export async function bundled(main, { packages = false } = {}) {
  const kept = join(root, "build", "bundles", main);
  const index = join(kept, "index.json");
  const known = current(index);
  if (known === undefined && !writable(kept)) {
    await import("./source_hooks.mjs");
    return pathToFileURL(join(root, main)).href;
  }
  const folder = known ?? (await make(join(root, main), packages, kept, index));
  return pathToFileURL(join(folder, "main.js")).href;
}

/** Runs a source file in this process: its bundle, whose errors name lines of the sources. Returns what it exports. */
export async function importBundled(main, options) {
  process.setSourceMapsEnabled(true);
  return import(await bundled(main, options));
}
