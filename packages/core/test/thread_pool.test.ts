import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { PLATFORM } from "../src/binaries.ts";
import { runChild, runProgram } from "./run_child.ts";

describe("the pool of threads", () => {
  it("runs every chunk once: around its limits, with callers that share it, to its end", async () => {
    const program = fileURLToPath(new URL(`prebuilds/${PLATFORM}/thread_pool_test`, import.meta.url));
    const end = await runProgram(program, [], {}, 600_000);
    expect(end).toEqual({
      code: 0,
      signal: null,
      stdout: "boundaries\nmany jobs\nmany threads\nshared by callers\napart\nendings\n",
      stderr: "",
    });
  }, 600_000);

  // Each of the 1024 threadgroups of a dispatch is a chunk: 256 threads would have up to 16 each.
  it.each([
    [1023, "forward"],
    [1024, "forward"],
    [1025, "reverse"],
    [2300, "forward"],
    [2300, "reverse"],
  ])("runs %i dispatches of 1024 chunks between two barriers, %s", async (dispatches, order) => {
    const end = await runChild("many_dispatches", [String(dispatches), "1024", "256", order], {}, 50_000);
    expect(end).toEqual({ code: 0, signal: null, stdout: "true\n", stderr: "" });
  });
});
