// Submissions in flight on the Metal device: they may end in any way, and Metal may report their ends in any order.
import { existsSync, readFileSync, rmSync } from "node:fs";
import { expect, it } from "vitest";
import type { Device, MlxtsError } from "../src/index.ts";
import { caught, rejected, testFolder } from "./helpers.ts";
import { fill } from "./internals.ts";
import { increment, limit } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

function work(device: Device, count = 1, options?: { profile: boolean }) {
  const x = device.tensor("u32", [8]);
  const encoder = device.encoder();
  for (let i = 0; i < count; i++) increment(encoder, { x, out: x });
  return { x, submission: encoder.commit(options) };
}

const SCHEDULES = ["forward", "reverse", "random:1", "random:2", "random:3"];
const COMPLETIONS = ["", "completes:inside", "completes:before", "late:5", "delay:10", "late:20@1,delay:5@2"];

describeSimulated("submissions", () => {
  it.each(SCHEDULES.flatMap((schedule) => COMPLETIONS.map((fault) => [schedule, fault] as const)))(
    "end in order, once and with their results: %s, %s",
    async (schedule, fault) => {
      set({ schedule, fault });
      using device = openMetal();
      const x = device.tensor("u32", [64]);
      const scratch = device.buffer(256);
      const ended: number[] = [];
      const all = Array.from({ length: 8 }, (_, i) => {
        const encoder = device.encoder();
        for (let k = 0; k < 3; k++) increment(encoder, { x, out: x }, { groups: 8 });
        fill(scratch, i);
        const submission = encoder.commit({ profile: i % 2 === 1 });
        void submission.then(() => ended.push(i));
        return submission;
      });
      for (const submission of all) await submission;
      expect(ended).toEqual(all.map((_, i) => i));
      expect(x.readSync().every((value) => value === 24)).toBe(true);
      expect(new Uint8Array(await scratch.read()).every((byte) => byte === 7)).toBe(true);
    },
  );

  it.each(["", "late:30@1", "late:30@2"])("last from their first dispatch to their last: %s", async (late) => {
    set({ fault: `slow:20,${late}` });
    using device = openMetal();
    const { ms, dispatches = [] } = await work(device, 3, { profile: true }).submission;
    expect(ms).toBeGreaterThanOrEqual(60);
    expect(dispatches).toHaveLength(3);
    for (const { us } of dispatches) expect(us).toBeGreaterThanOrEqual(20_000);
    expect(dispatches.reduce((sum, { us }) => sum + us, 0)).toBeLessThanOrEqual(ms * 1000 + 1);
  });

  it("fail as the first of their command buffers, whatever comes after", async () => {
    set({ fault: "fail:timeout@1,fail:pageFault@2,completes:inside" });
    using device = openMetal();
    const error = (await rejected(work(device, 3, { profile: true }).submission)) as unknown as MlxtsError;
    expect(error.details.cause).toBe("timeout");
    set({ fault: "fail:pageFault@4,completes:inside,no-command-buffer@5" });
    const refused = (await rejected(work(device, 3, { profile: true }).submission)) as unknown as MlxtsError;
    expect(refused.details.cause).toBe("pageFault");
  });

  it("name the op that failed where each dispatch is timed by itself", async () => {
    for (const [failed, op] of [
      [1, "increment"],
      [2, "limit"],
      [3, "increment"],
    ] as const) {
      set({ fault: `fail:timeout@${failed}` });
      using device = openMetal();
      const x = device.tensor("u32", [8]);
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      limit(encoder, { x }, { limit: 10 });
      increment(encoder, { x, out: x });
      const error = (await rejected(encoder.commit({ profile: true }))) as unknown as MlxtsError;
      expect(error.message).toMatch(new RegExp(`^${op}: Caused GPU Timeout`));
    }
  });

  it("leave a lost device lost", async () => {
    set({ fault: "delay:20,fail:accessRevoked@1,fail:timeout@2" });
    using device = openMetal();
    const [first, second] = [work(device).submission, work(device).submission];
    expect(await rejected(first)).toMatchObject({ details: { cause: "deviceLost" } });
    expect(await rejected(second)).toMatchObject({ details: { cause: "timeout" } });
    const error = await rejected(work(device).submission);
    expect(error.message).toBe("increment: the device has been lost");
  });

  it("fail without a reason where Metal gives none", async () => {
    using device = openMetal();
    set({ fault: "fail:internal,no-reason" });
    expect((await rejected(work(device).submission)).message).toBe("increment: no reason given");
    set({ fault: "no-capture,no-reason", capture: "nowhere" });
    expect(caught(() => openMetal()).message).toMatch(/^cannot capture to nowhere: no reason given /);
  });
});

describeSimulated("data errors", () => {
  /** A submission of dispatches that fail at elements above their limits. */
  function limited(device: Device, ...all: [values: number[], limit: number][]) {
    const encoder = device.encoder();
    for (const [values, below] of all)
      limit(encoder, { x: device.tensor("u32", [values.length], values) }, { limit: below });
    return encoder.commit();
  }

  it.each(SCHEDULES)("name the earliest dispatch, and in it the first element: %s", async (schedule) => {
    set({ schedule });
    using device = openMetal();
    const wrong = Array.from({ length: 500 }, (_, i) => (i % 100 === 50 ? 1000 + i : 1));
    const fails = async (message: string, ...all: [number[], number][]) =>
      expect((await rejected(limited(device, ...all))).message).toBe(message);
    await fails("limit: `x` must be < 30, got 1050", [[1], 10], [[1], 20], [wrong, 30], [[1], 40]);
    await fails("limit: `x` must be < 20, got 55", [[1], 10], [[7, 55, 56], 20], [wrong, 30], [[99], 40]);
    await fails("limit: `x` must be < 40, got 99", [[1], 10], [[1], 20], [[1], 30], [[99], 40]);
    await limited(device, [[1], 10], [[1], 20], [[1], 30], [[1], 40]);
  });

  it.each(["delay:20", "late:20"])("have records of their own in submissions in flight together: %s", async (fault) => {
    set({ fault });
    using device = openMetal();
    const one = (bad: boolean, below: number): [number[], number] => [[bad ? 99 : 1], below];
    for (let round = 0; round < 3; round++) {
      const all = [
        limited(device, one(false, 10)),
        limited(device, one(false, 11), one(true, 12)),
        limited(device, one(false, 13)),
        limited(device, one(true, 14)),
        limited(device, ...Array.from({ length: 9 }, (_, i) => one(i === 8, 20 + i))),
      ];
      const ends = await Promise.all(
        all.map((end) =>
          end.then(
            () => "well",
            (error: unknown) => (error as Error).message,
          ),
        ),
      );
      expect(ends).toEqual([
        "well",
        "limit: `x` must be < 12, got 99",
        "well",
        "limit: `x` must be < 14, got 99",
        "limit: `x` must be < 28, got 99",
      ]);
    }
  });

  it("take records that were used before where they are long enough", async () => {
    using device = openMetal();
    const x = device.tensor("u32", [1], [1]);
    const out = device.tensor("u32", [1]);
    const run = (count: number) => {
      const encoder = device.encoder();
      for (let i = 0; i < count; i++) limit(encoder, { x, out }, { limit: 10 });
      return encoder.commit();
    };
    for (const count of [1, 2, 4, 3]) await run(count);
    set({ fault: "no-buffer" });
    for (const count of [1, 2, 3, 4]) await run(count);
    expect((await rejected(run(5))).message).toBe("limit: Metal gave no command buffer, encoder or buffer");
  });
});

describeSimulated("memory of the Metal device", () => {
  it("leaves the residency set before its pages go, also while other work waits", async () => {
    set({ fault: "delay:30@1" });
    using device = openMetal();
    const mapped = await device.mapFile(process.execPath, 100_000);
    const { submission } = work(device);
    mapped.dispose();
    await submission;
  });

  it("opens on the oldest GPU that has what kernels need", () => {
    set({ fault: "apple7" });
    openMetal().dispose();
  });

  const env = {
    MLXTS_DEVICE: "metal",
    MLXTS_METAL_SIM: process.env.MLXTS_METAL_SIM ?? "1",
    MLXTS_METAL_SIM_REPORT: "1",
  };
  const report = async (scenario: string, fault: string) => {
    const { code, stdout, stderr } = await runChild("metal_memory", [scenario], {
      ...env,
      MLXTS_METAL_SIM_FAULT: fault,
    });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "done\n" });
    const [, live, commits, most] =
      /(\d+) live objects.* (\d+) residency commits.* (\d+) bytes resident/.exec(stderr) ?? [];
    return { live: Number(live), commits: Number(commits), most: Number(most) };
  };
  const MEGABYTE = 2 ** 20;

  it("is resident up to the working set, and again after other memory has gone", async () => {
    // Buffers of a quarter of the set: eight at once, then twenty one after the other, each with a submission.
    const set = `working-set:${MEGABYTE}`;
    expect(await report("at-once", set)).toEqual({ live: 0, commits: 1, most: MEGABYTE });
    expect(await report("in-turn", set)).toEqual({ live: 0, commits: 20, most: MEGABYTE / 4 });
    // Three of four are freed, and the next submission commits that to the set.
    expect(await report("fewer", set)).toEqual({ live: 0, commits: 2, most: MEGABYTE });
    expect(await report("in-turn", "macos-14")).toEqual({ live: 0, commits: 0, most: 0 });
  });

  it("and everything else is given back", async () => {
    expect(await report("everything", "")).toMatchObject({ live: 0 });
  });
});

describeSimulated("a capture", () => {
  it("has everything that ran while its device was open, by name", async () => {
    const capture = `${testFolder()}/named.gputrace`;
    for (const profile of [false, true]) {
      set({ capture, fault: "delay:20" });
      const device = openMetal();
      work(device).submission.then(null, () => {});
      const { submission } = work(device, 2, { profile });
      submission.then(null, () => {});
      expect(existsSync(capture)).toBe(false);
      device.dispose();
      const dispatch = "  increment_u32: increment";
      const second = profile ? [dispatch, "mlxts: submission 2", dispatch] : [dispatch, dispatch];
      expect(readFileSync(capture, "utf8").trimEnd().split("\n")).toEqual([
        "mlxts: submission 1",
        dispatch,
        "mlxts: submission 2",
        ...second,
      ]);
      rmSync(capture);
    }
  });
});
