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

/** The resident bytes of a process after each eighth of the rounds in which workers come and go. */
async function resident(rounds: number, environment: Record<string, string>): Promise<number[]> {
  const { stdout, ...end } = await runChild("workers_come_and_go", [`${rounds}`], environment);
  expect(end).toEqual({ code: 0, signal: null, stderr: "" });
  return JSON.parse(stdout) as number[];
}

const MOST_GROWTH = 4 * 2 ** 20;
// Two workers a round; each would leave tens of KB if the process had to load the addon anew for it.
const ROUNDS = 120;
const MINUTES = { timeout: 600_000 };

describe.skipIf(firstRing)("workers that come and go", () => {
  it("leave the memory of the process as it was: on the CPU", MINUTES, async () => {
    const bytes = await resident(ROUNDS, { MLXTS_DEVICE: "cpu" });
    expect((bytes.at(-1) as number) - (bytes[3] as number)).toBeLessThan(MOST_GROWTH);
  });
});

describeCuda("workers on a CUDA device", () => {
  const folder = testFolder();
  it.skipIf(firstRing)("come and go, and leave the memory of the process as it was", MINUTES, async () => {
    const report = join(folder, "come-and-go");
    const bytes = await resident(ROUNDS, childEnvironment(report));
    expect((bytes.at(-1) as number) - (bytes[3] as number)).toBeLessThan(MOST_GROWTH);
    expect(linesOf(report).filter((line) => !/ (begins|ends(, lost)?)$/.test(line))).toEqual([]);
  });
  it.each(ACTIVITIES)("may end during: %s", async (activity) => {
    const report = join(folder, activity);
    await ends(activity, childEnvironment(report, "delay:500"));
    expect(linesOf(report).filter((line) => line.startsWith("fault"))).toEqual([]);
  });
});
