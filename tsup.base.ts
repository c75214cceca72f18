import { defineConfig, type Options } from "tsup";

/**
 * At the top of all declarations: what they name and a project without `@types/node` and without the DOM's types lacks. Where
 * there is an AbortSignal, the empty interface adds nothing to it.
 */
const GLOBAL_TYPES = `/// <reference lib="esnext.disposable" />
declare global {
  interface AbortSignal {}
}`;

/** How every package is bundled: ESM and CommonJS, with types for each, which leave out what is marked `@internal`. */
export const library = (options: Options = {}) =>
  defineConfig({
    entry: ["src/index.ts"],
    format: ["esm", "cjs"],
    // Types are checked by `tsc -p tsconfig.json`: not again for each package, with all that it imports.
    // Bundling them takes most of the time, and programs run without them.
    dts: process.env.MLXTS_BUNDLE_TYPES !== "0" && {
      banner: GLOBAL_TYPES,
      // Types of the package that others carry in their bundles are found as sources, and so become part of the bundle too.
      compilerOptions: {
        noCheck: true,
        stripInternal: true,
        paths: { "@mlxts/common/*": ["../../packages/common/src/*.ts"] },
      },
    },
    clean: true,
    // CommonJS output gets an `import.meta.url`, from which binaries are found.
    shims: true,
    splitting: true,
    target: "node20",
    ...options,
  });

export default library();
