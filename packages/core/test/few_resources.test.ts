// Processes that the system gives no more file descriptors or threads: nothing ends them, and errors say why.
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundled } from "@mlxts/test-kit/bundled";
import { childEnvironment } from "@mlxts/test-kit/cuda_standin";
import { describe, expect, it } from "vitest";
import { writeSafetensors } from "../src/index.ts";
import { describeCuda, linesOf } from "./cuda.ts";
import { testFolder } from "./helpers.ts";
import { runProgram } from "./run_child.ts";

const folder = testFolder();
const path = join(folder, "file.safetensors");
writeSafetensors(path, [["x", { dtype: "u8", shape: [4], data: new Uint8Array([1, 2, 3, 4]) }]]);

/** What a process does under a limit of the shell's `ulimit`. */
async function under(limit: string, kind: string, what: string, environment = {}): Promise<Record<string, string>> {
  const file = fileURLToPath(await bundled("packages/core/test/children/few_resources.ts"));
  const command = `${limit}; exec "$@"`;
  const args = ["-c", command, "sh", process.execPath, file, kind, path, what];
  const { stdout, ...end } = await runProgram("/bin/sh", args, environment);
  expect(end).toEqual({ code: 0, signal: null, stderr: "" });
  return JSON.parse(stdout);
}

describe.skipIf(process.platform !== "linux")("without file descriptors", () => {
  it("the CPU device goes on, and files give errors", async () => {
    expect(await under("ulimit -n 64", "cpu", "descriptors")).toEqual({
      use: "works",
      open: "works",
      map: "Io",
      read: "Io",
      after: "works",
    });
  });
  describeCuda("a CUDA device", () => {
    it("goes on, and files give errors", async () => {
      const report = join(folder, "report");
      const outcomes = await under("ulimit -n 64", "cuda", "descriptors", childEnvironment(report));
      expect(outcomes).toMatchObject({ use: "works", map: "Io", read: "Io", after: "works" });
      expect(linesOf(report).filter((line) => line.startsWith("fault"))).toEqual([]);
    });
  });
});
