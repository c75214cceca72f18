import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { MetalSimError } from "./errors.ts";

/** A package of Metal kernels with conformance suites (`@mlxts/core/testing`). */
export interface KernelPackage {
  /** What reports and options call it. */
  name: string;
  /** The folder of its .metal files. */
  native: string;
  /** The module that exports `suites`. */
  suites: string;
  /** Folders of everything that decides what a case computes: when a file changes, cases are measured anew. */
  sources: readonly string[];
}

/** What `metal-sim mutants` and `metal-sim coverage` test; the module that they are given exports it. */
export interface KernelProject {
  /** The other paths are relative to this folder. */
  root: string;
  packages: readonly KernelPackage[];
  /** Folders of headers that the kernels of every package may include. */
  headers: readonly string[];
  /** What is kept between runs lies here. */
  build: string;
  /** JSON files with reasons: for mutants that survive (`Explanation`), and for lines that nothing executes (`Exception`). */
  explained: { mutants: string; lines: string };
  /** The command that runs all tests of packages, by name. */
  tests(packages: readonly string[]): readonly string[];
  /**
   * The command that runs what a package tests beside its suites and prints a report in vitest's JSON. It replaces
   * kernels by the texts of the file that `MLXTS_METAL_TEXTS` names, `{ path: text }`, with `metalTexts`.
   */
  otherTests(name: string): readonly string[];
  /** Arguments of Node.js for processes that import the suites. */
  nodeArguments?: readonly string[];
  /** The path of a `metal-sim` command that starts quickly: thousands of texts are compiled. Default: the installed one. */
  command?(): Promise<string>;
}

/** The project that a module exports as `project`. */
export async function readProject(path: string): Promise<KernelProject> {
  const { project } = (await import(pathToFileURL(resolve(path)).href)) as { project?: KernelProject };
  if (!project) throw new MetalSimError("InvalidArgument", `${path} must export \`project\``);
  return project;
}

/** What the kernels of a simulated device and the processes that use one are told. */
export const simulatedDevice = (command?: string): NodeJS.ProcessEnv => ({
  ...process.env,
  MLXTS_DEVICE: "metal",
  MLXTS_METAL_SIM: process.env.MLXTS_METAL_SIM || "1",
  MLXTS_POISON: "1",
  ...(command !== undefined && { MLXTS_METAL_SIM_COMMAND: command }),
});
