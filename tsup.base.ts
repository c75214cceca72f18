import { defineConfig, type Options } from "tsup";

/** How every package is bundled: ESM and CommonJS, with types for each. */
export const library = (options: Options = {}) =>
  defineConfig({
    entry: ["src/index.ts"],
    format: ["esm", "cjs"],
    // Types are checked by `tsc -p tsconfig.json`: not again for each package, with all that it imports.
    // Bundling them takes most of the time, and programs run without them.
    dts: process.env.MLXTS_BUNDLE_TYPES !== "0" && {
      // Types of the package that others carry in their bundles are found as sources, and so become part of the bundle too.
      compilerOptions: { noCheck: true, paths: { "@mlxts/common/*": ["../../packages/common/src/*.ts"] } },
    },
    clean: true,
    // CommonJS output gets an `import.meta.url`, from which binaries are found.
    shims: true,
    splitting: true,
    target: "node20",
    ...options,
  });

export default library();
