import { expect, it } from "vitest";
import { executedLines } from "../../packages/metal-sim/src/executed_lines.ts";
import { kernelFiles } from "../../packages/metal-sim/src/kernel_files.ts";
import { project } from "./kernels.ts";

it("lines of Metal kernels can be told apart in this repository", () => {
  expect(executedLines([], kernelFiles(project)).size).toBe(0);
});
