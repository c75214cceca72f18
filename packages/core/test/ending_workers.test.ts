// Workers that end, in every way, while they use devices: the process must go on, and nothing of the driver's may be left.
import { join } from "node:path";
import { childEnvironment } from "@mlxts/test-kit/cuda_standin";
import { firstRing, repeated } from "@mlxts/test-kit/rings";
import { describe, expect, it } from "vitest";
import { describeCuda, linesOf } from "./cuda.ts";
import { testFolder } from "./helpers.ts";
import { runChild } from "./run_child.ts";

const ACTIVITIES = ["open", "load", "generate", "read", "write", "dispose"];
const COUNT = repeated(16);
const ends = async (activity: string, environment: Record<string, string>) => {
  const end = await runChild("ending_workers", [activity, `${COUNT}`, "7"], environment);
  expect(end).toEqual({ code: 5, signal: null, stdout: "terminate\nexit\nnatural\n", stderr: "" });
};

// In the first ring those on CUDA, which do more outside of JavaScript.
describe.skipIf(firstRing)("workers on the CPU", () => {
  it.each(ACTIVITIES)("may end during: %s", (activity) => ends(activity, { MLXTS_DEVICE: "cpu" }));
});

describeCuda("workers on a CUDA device", () => {
  const folder = testFolder();
  it.each(ACTIVITIES)("may end during: %s", async (activity) => {
    const report = join(folder, activity);
    await ends(activity, childEnvironment(report, "delay:500"));
    expect(linesOf(report).filter((line) => line.startsWith("fault"))).toEqual([]);
  });
});
