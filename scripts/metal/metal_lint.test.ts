import { join } from "node:path";
import { withClang } from "@mlxts/test-kit/clang";
import { expect, it } from "vitest";
import { inlineIncludes } from "../../packages/core/src/metal_source.ts";
import { type LintFinding, lint } from "../../packages/metal-sim/src/index.ts";
import { kernelFiles } from "../../packages/metal-sim/src/kernel_files.ts";
import { root } from "../check/packages.ts";
import { project } from "./kernels.ts";

withClang("what compilers say about the Metal kernels: warnings, address spaces, the portable subset", () => {
  it.each(kernelFiles(project).map(({ path }) => path))("%s: nothing", (path) => {
    const text = inlineIncludes(join(root, path), [join(root, "packages", "core", "native")]);
    const found = lint({ path, text }).map(
      ({ file, line, kind, message }: LintFinding) => `${file}:${line}: ${kind}: ${message}`,
    );
    expect(found).toEqual([]);
  });
});
