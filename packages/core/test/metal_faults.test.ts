import { expect, it } from "vitest";
import { Device, type MlxtsError } from "../src/index.ts";
import { caught, rejected, testFolder } from "./helpers.ts";
import { fill } from "./internals.ts";
import { increment, limit } from "./kernels/probe.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

function work(device: Device, count = 1, options?: { profile: boolean }) {
  const x = device.tensor("u32", [8]);
  const encoder = device.encoder();
  for (let i = 0; i < count; i++) increment(encoder, { x, out: x });
  return { x, submission: encoder.commit(options) };
}

describeSimulated("failed submissions", () => {
  const causes: [fault: string, cause: string, transient: boolean, message: RegExp][] = [
    ["internal", "unknown", true, /Internal Error/],
    ["victim", "interrupted", true, /InnocentVictim/],
    ["impacting", "interrupted", true, /ImpactingInteractivity/],
    ["hang", "timeout", true, /GPU Hang/],
    ["timeout", "timeout", true, /GPU Timeout/],
    ["pageFault", "pageFault", false, /GPU Address Fault/],
    ["accessRevoked", "deviceLost", false, /SubmissionsIgnored/],
    ["notPermitted", "invalidResource", false, /Insufficient Permission/],
    ["outOfMemory", "outOfMemory", true, /Insufficient Memory/],
    ["invalidResource", "invalidResource", false, /Invalid Resource/],
    ["memoryless", "invalidResource", false, /Memoryless/],
    ["deviceRemoved", "deviceLost", false, /removed/],
    ["stackOverflow", "invalidResource", false, /stack/],
  ];
  it.each(causes)("of Metal's %s have the cause %s", async (fault, cause, transient, text) => {
    using device = openMetal();
    set({ fault: `fail:${fault}` });
    const { x, submission } = work(device);
    const error = (await rejected(submission)) as unknown as MlxtsError;
    expect(error.code).toBe("CommandBuffer");
    expect(error.details).toEqual({ cause, ops: ["increment"] });
    expect(error.transient).toBe(transient);
    expect(error.message).toMatch(text);
    expect(error.message).toMatch(/^increment: /);
    expect(error.stack).toContain("metal_faults.test.ts");
    // Memory that it would have written is undefined until it is written again.
    expect(await rejected(x.read())).toBe(error);
    set({});
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const next = encoder.commit();
    if (cause === "deviceLost") expect((await rejected(next)).message).toBe("increment: the device has been lost");
    else {
      await next;
      expect(x.readSync()[0]).toBe(1);
    }
  });

  it("do not affect later ones", async () => {
    using device = openMetal();
    set({ fault: "fail:timeout,delay:20" });
    const first = work(device);
    set({});
    const second = work(device);
    const order: string[] = [];
    const ends = [
      first.submission.then(null, () => order.push("first")),
      second.submission.then(() => order.push("second")),
    ];
    await Promise.all(ends);
    expect(order).toEqual(["first", "second"]);
    expect(second.x.readSync()[0]).toBe(1);
  });

  it("name the dispatch when each is timed by itself", async () => {
    using device = openMetal();
    set({ fault: "fail:timeout" });
    const error = await rejected(work(device, 3, { profile: true }).submission);
    expect(error.message).toMatch(/^increment: Caused GPU Timeout/);
  });

  it.each([
    ["no-command-buffer", 1, {}],
    ["no-encoder", 1, {}],
    ["no-encoder", 3, { profile: true }],
  ] as const)("follow when Metal refuses to encode: %s, %d dispatches", async (fault, count, options) => {
    using device = openMetal();
    const done = work(device);
    set({ fault });
    const error = (await rejected(
      work(device, count, options as { profile: boolean }).submission,
    )) as unknown as MlxtsError;
    expect(error.details.cause).toBe("outOfMemory");
    expect(error.message).toBe("increment: Metal gave no command buffer, encoder or buffer");
    set({});
    await done.submission;
    const { x, submission } = work(device);
    await submission;
    expect(x.readSync()[0]).toBe(1);
  });

  it("follow when Metal refuses the records of data errors", async () => {
    using device = openMetal();
    const x = device.tensor("u32", [1], [3]);
    const out = device.tensor("u32", [1]);
    const limited = (options = {}) => {
      const encoder = device.encoder();
      limit(encoder, { x, out }, { limit: 10 });
      return encoder.commit(options);
    };
    set({ fault: "no-buffer" });
    for (const options of [{}, { profile: true }]) {
      const error = await rejected(limited(options));
      expect(error.message).toBe("limit: Metal gave no command buffer, encoder or buffer");
    }
    set({});
    await limited();
    expect(out.readSync()[0]).toBe(3);
  });

  it("follow when Metal refuses to fill", async () => {
    using device = openMetal();
    using buffer = device.buffer(64);
    const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
    set({ fault: "no-blit" });
    fill(buffer, 1);
    expect((await warned).message).toMatch(/fill: Metal gave no command buffer, encoder or buffer/);
    set({});
    fill(buffer, 1);
    expect(new Uint8Array(await buffer.read())[63]).toBe(1);
  });
});

describeSimulated("a Metal device that cannot be had", () => {
  it.each([
    ["no-device", "the system has no Metal device"],
    ["old-gpu", "Metal simulator on the CPU (no GPU) is not an Apple silicon GPU"],
    ["no-queue", "Metal gave no command queue"],
    ["no-fence", "Metal gave no command queue"],
    ["no-buffer", "Metal gave no command queue"],
  ])("says why: %s", (fault, reason) => {
    set({ fault });
    const error = caught(() => openMetal()) as unknown as MlxtsError;
    expect(error.code).toBe("DeviceNotFound");
    expect(error.message).toBe(`no device found: metal (${reason})`);
    expect(error.details.tried).toEqual([{ kind: "metal", reason }]);
  });

  it("or memory", async () => {
    using device = openMetal();
    using cpu = Device.open("cpu");
    set({ fault: "no-buffer,no-wrap" });
    const error = caught(() => device.buffer(64));
    expect(error.code).toBe("BufferAllocation");
    expect(error.message).toBe("cannot allocate 64 bytes on metal");
    const memory = new Uint8Array(cpu.buffer(2 ** 21).arrayBuffer());
    expect(caught(() => device.wrap(memory)).message).toBe(`cannot allocate ${2 ** 21} bytes on metal`);
    expect((await rejected(device.mapFile(process.execPath, 100))).message).toBe("cannot allocate 100 bytes on metal");
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it.each(["macos-14", "no-residency", "working-set:4096"])("works without residency sets: %s", async (fault) => {
    set({ fault });
    using device = openMetal();
    const { x, submission } = work(device, 2);
    await submission;
    expect(x.readSync()[0]).toBe(2);
    const more = work(device);
    await more.submission;
    more.x.dispose();
    x.dispose();
  });
});

describeSimulated("a capture", () => {
  const capture = `${testFolder()}/trace.gputrace`;

  it("lasts as long as its device", async () => {
    set({ capture });
    using device = openMetal();
    const { x, submission } = work(device, 2);
    await submission;
    expect(x.readSync()[0]).toBe(2);
    // One at a time.
    const error = caught(() => openMetal());
    expect(error.code).toBe("Io");
    expect(error.details).toEqual({ path: capture, operation: "capture" });
    expect(error.message).toBe(
      `cannot capture to ${capture}: Capturing is not supported. (captures need METAL_CAPTURE_ENABLED=1 and a path that does not exist)`,
    );
    device.dispose();
    set({ capture: `${capture}.2` });
    openMetal().dispose();
  });
});
