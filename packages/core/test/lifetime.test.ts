import { describe, expect, it } from "vitest";
import { Device } from "../src/index.ts";
import { testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";
import { wrappable } from "./wrappable.ts";

describe("lifetime", () => {
  it("gives everything back", async () => {
    using device = Device.open("cpu");
    const tensors = Array.from({ length: 20 }, (_, i) => device.tensor("u32", [1000 + i]));
    const arena = device.arena(10_000);
    const encoder = device.encoder({ arena });
    for (const x of tensors) increment(encoder, { x, out: x });
    const recording = encoder.finish();
    await recording.replay();
    const submission = recording.replay();
    recording.dispose();
    arena.dispose();
    for (const tensor of tensors) tensor.dispose();
    await submission;
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it("ends a device with work in flight that nobody awaits", async () => {
    const device = Device.open("cpu");
    const memory = wrappable(new Uint32Array(64));
    const { Tensor } = await import("../src/index.ts");
    const x = new Tensor(device.wrap(memory), "u32", [64]);
    const encoder = device.encoder();
    for (let i = 0; i < 5; i++) increment(encoder, { x, out: x }, { microseconds: 5000 });
    const submission = encoder.commit();
    device.dispose();
    expect(memory[0]).toBe(5);
    expect(submission.state).toBe("completed");
    expect((await submission).ms).toBeGreaterThan(20);
    expect(submission.waitSync().ms).toBeGreaterThan(20);
  });

  it("survives devices that come and go", async () => {
    for (let i = 0; i < 40; i++) {
      using device = Device.open("cpu", { threads: 1 + (i % 4) });
      const x = device.tensor("u32", [256]);
      const encoder = device.encoder();
      increment(encoder, { x, out: x }, { groups: 16 });
      if (i % 2) await encoder.commit();
      else void encoder.commit();
    }
  });

  it("shares a pool between devices that work at once", async () => {
    const devices = [testDevice({ threads: 2 }), testDevice({ threads: 2 }), testDevice({ threads: 3 })];
    await Promise.all(
      devices.map(async (device) => {
        const x = device.tensor("u32", [4096]);
        for (let i = 0; i < 300; i++) {
          const encoder = device.encoder();
          increment(encoder, { x, out: x }, { groups: 64 });
          await encoder.commit();
        }
        expect(new Set(x.readSync())).toEqual(new Set([300]));
      }),
    );
  });

  const endings: [how: string, code: number, stdout: string, stderr: RegExp][] = [
    ["natural", 0, "80\n", /^$/],
    ["exit", 7, "", /^$/],
    ["later", 7, "", /^$/],
    ["throw", 1, "", /Error: uncaught/],
    ["reject", 1, "", /Error: unhandled/],
    ["dispose", 0, "disposed\n", /^$/],
    ["idle", 0, "idle\n", /^$/],
    ["sync", 0, "sync\n", /^$/],
  ];
  it.each(endings)("lets a process end with work in flight: %s", async (how, code, stdout, stderr) => {
    for (let round = 0; round < 2; round++) {
      const end = await runChild("in_flight", [how]);
      expect(end.signal).toBe(null);
      expect(end.stderr).toMatch(stderr);
      expect({ code: end.code, stdout: end.stdout }).toEqual({ code, stdout });
    }
  });

  it("collects what nobody disposed", async () => {
    const end = await runChild("collected", [], { MLXTS_DEBUG: "0" });
    expect(end.stderr).toBe("");
    expect(end.code).toBe(0);
    const { before, most, after, peak, buffers, arrays } = JSON.parse(end.stdout) as Record<string, number>;
    expect(most).toBeGreaterThan(before as number);
    expect(after).toBeLessThanOrEqual(before as number);
    expect(peak).toBeLessThan(2 ** 30);
    expect([buffers, arrays]).toEqual([0, 0]);
  });

  it("tells where lost buffers were made, at MLXTS_DEBUG 3", async () => {
    const end = await runChild("collected", [], { MLXTS_DEBUG: "3" });
    const report = /mlxts leak: a buffer was collected that nobody had disposed, made\n(.+\n)?.+collected\.ts/;
    expect(report.test(end.stderr)).toBe(true);
  });
});
