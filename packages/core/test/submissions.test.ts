import { describe, expect, it, vi } from "vitest";
import { Device, type Tensor } from "../src/index.ts";
import { failureOf } from "../src/submission_failure.ts";
import { caught, rejected, testDevice } from "./helpers.ts";
import { increment, limit } from "./kernels/probe.ts";

describe("submissions", () => {
  const device = testDevice();

  function commit(x: Tensor, out: Tensor, microseconds = 0) {
    const encoder = device.encoder();
    increment(encoder, { x, out }, { microseconds });
    return encoder.commit();
  }

  it("run in the order of commit and see each other's writes", async () => {
    const x = device.tensor("u32", [8]);
    const all = Array.from({ length: 300 }, (_, i) => commit(x, x, i % 10 === 0 ? 100 : 0));
    const ended: number[] = [];
    all.forEach((submission, i) => void submission.then(() => ended.push(i)));
    await all.at(-1);
    expect(ended).toEqual(all.map((_, i) => i));
    expect([...x.readSync()]).toEqual(Array(8).fill(300));
  });

  it("may be awaited twice, late, or never", async () => {
    const x = device.tensor("u32", [8]);
    const submission = commit(x, x, 1000);
    expect(submission.state).toBe("committed");
    const first = await submission;
    expect(await submission).toBe(first);
    expect(submission.waitSync()).toBe(first);
    expect(submission.state).toBe("completed");
    const never = commit(x, x);
    const late = commit(x, x, 1000);
    expect(late.waitSync().ms).toBeGreaterThan(0.9);
    expect(never.state).toBe("completed");
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect((await late).ms).toBeGreaterThan(0.9);
    expect([...x.readSync()]).toEqual(Array(8).fill(3));
  });

  it("never write what is being read", async () => {
    using device = Device.open("cpu", { threads: 2 });
    const x = device.tensor("u32", [1 << 20]);
    const step = () => {
      const encoder = device.encoder();
      increment(encoder, { x, out: x }, { groups: 8, microseconds: 200 });
      return encoder.commit();
    };
    for (let i = 0; i < 20; i++) {
      void step();
      const read = x.read();
      void step();
      const values = await read;
      expect(values.every((value) => value === values[0])).toBe(true);
      expect(values[0]).toBeGreaterThan(2 * i);
    }
  });

  it("cannot be read from a buffer that is disposed meanwhile", async () => {
    const x = device.tensor("u32", [64]);
    void commit(x, x, 5000);
    const read = x.read();
    x.dispose();
    expect((await rejected(read)).message).toBe("the buffer has been disposed");
  });

  it("leave the event loop free", async () => {
    const x = device.tensor("u32", [8]);
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await commit(x, x, 100_000);
    clearInterval(timer);
    // At least some of twenty: a busy machine is late with most of them.
    expect(ticks).toBeGreaterThan(1);
  });

  it("time each dispatch when asked to", async () => {
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x }, { microseconds: 3000 });
    increment(encoder, { x, out: x });
    const { ms, dispatches } = await encoder.commit({ profile: true });
    expect(dispatches?.map(({ label }) => label)).toEqual(Array(2).fill("increment/increment_u32"));
    expect(dispatches?.[0]?.us).toBeGreaterThanOrEqual(3000);
    expect(dispatches?.[1]?.us).toBeGreaterThan(0);
    expect(dispatches?.[1]?.us).toBeLessThan(3000);
    expect(ms).toBeGreaterThanOrEqual(3);
  });

  it("hold little when there are very many", async () => {
    using device = Device.open("cpu", { threads: 1 });
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const recording = encoder.finish();
    const before = process.memoryUsage().rss;
    let last = recording.replay();
    for (let i = 1; i < 100_000; i++) last = recording.replay();
    await last;
    expect(x.readSync()[0]).toBe(100_000);
    expect(process.memoryUsage().rss - before).toBeLessThan(600 << 20);
  });
});

describe("failures", () => {
  const device = testDevice();
  const x = device.tensor("u32", [8], [0, 1, 2, 3, 4, 50, 6, 70]);

  function fail() {
    const encoder = device.encoder();
    const out = limit(encoder, { x }, { limit: 10 });
    return { out, submission: encoder.commit() };
  }

  it("that a kernel reports are argument errors of its op", async () => {
    const { submission } = fail();
    const error = await rejected(submission);
    expect(error.message).toBe("limit: `x` must be < 10, got 50");
    expect(error).toBeInstanceOf(RangeError);
    expect(error).toMatchObject({
      code: "InvalidArgument",
      fault: { op: "limit", argument: "x", rule: "be < 10", value: "50" },
    });
    expect(submission.state).toBe("failed");
    expect(caught(() => submission.waitSync())).toBe(error);
    expect(await rejected(submission)).toBe(error);
  });

  it("carry the stack of the call that committed", async () => {
    const error = await rejected(fail().submission);
    expect(error.stack).toMatch(/^RangeError: limit: `x` must be < 10, got 50\n {4}committed at:\n/);
    expect(error.stack).toContain("submissions.test.ts");
    expect(error.stack).toContain("at fail");
  });

  it("of a recording carry the stack of its first replay", async () => {
    const encoder = device.encoder();
    limit(encoder, { x }, { limit: 10 });
    const recording = encoder.finish();
    const firstReplay = () => recording.replay();
    for (const submission of [firstReplay(), recording.replay()])
      expect((await rejected(submission)).stack).toContain("at firstReplay");
  });

  it("make what they would have written unreadable until it is written again", async () => {
    const { out, submission } = fail();
    const error = await rejected(out.read());
    expect(await rejected(submission)).toBe(error);
    expect(caught(() => out.readSync())).toBe(error);
    expect(caught(() => out.slice(7, 8).readSync())).toBe(error);
    expect([...x.readSync()]).toHaveLength(8);
    out.slice(0, 4).write(new Uint32Array(4));
    expect([...out.slice(0, 4).readSync()]).toEqual([0, 0, 0, 0]);
    expect(caught(() => out.slice(3, 5).readSync())).toBe(error);
    const encoder = device.encoder();
    increment(encoder, { x, out });
    void encoder.commit();
    expect((await out.read())[7]).toBe(71);
  });

  it("are overwritten by a submission that was in flight already", async () => {
    const { out } = fail();
    const encoder = device.encoder();
    increment(encoder, { x, out }, { microseconds: 5000 });
    void encoder.commit();
    expect((await out.read())[0]).toBe(1);
  });

  it("do not outlive the memory", async () => {
    using device = Device.open("cpu");
    for (let i = 0; i < 50; i++) {
      const x = device.tensor("u32", [1 << 16], new Uint32Array(1 << 16).fill(99));
      const encoder = device.encoder();
      const out = limit(encoder, { x }, { limit: 10 });
      await rejected(encoder.commit());
      out.dispose();
      x.dispose();
      expect(device.buffer(1 << 18).readSync(0, 4).byteLength).toBe(4);
    }
  });

  it("leave later submissions alone", async () => {
    const { submission } = fail();
    const encoder = device.encoder();
    const out = increment(encoder, { x });
    const later = encoder.commit();
    await rejected(submission);
    await later;
    expect(out.readSync()[0]).toBe(1);
  });

  it("name the earliest dispatch that failed", async () => {
    const encoder = device.encoder();
    const y = increment(encoder, { x });
    limit(encoder, { x: y }, { limit: 20 });
    limit(encoder, { x: y }, { limit: 60 });
    expect((await rejected(encoder.commit({ profile: true }))).message).toBe("limit: `x` must be < 20, got 51");
  });

  it("that nobody looks at are a warning, once", async () => {
    const warnings: Error[] = [];
    const listen = (warning: Error) => warnings.push(warning);
    process.on("warning", listen);
    const awaited = fail().submission;
    fail();
    await rejected(awaited);
    await vi.waitFor(() => expect(warnings).not.toEqual([]), { timeout: 10_000 });
    await new Promise((resolve) => setTimeout(resolve, 30));
    process.off("warning", listen);
    expect(warnings.map(({ name, message }) => `${name}: ${message}`)).toEqual([
      "MlxtsWarning: a submission failed and nobody awaited it: limit: `x` must be < 10, got 50",
    ]);
  });

  it("of the machine are errors of the command buffer", () => {
    const made = failureOf(
      { accesses: [], labels: ["a/b", "c/d"] },
      { id: 1, milliseconds: 0, code: "CommandBuffer", cause: "outOfMemory", message: "no memory for scratch", tag: 1 },
      new Error(),
    );
    expect(made).toMatchObject({
      code: "CommandBuffer",
      message: "c: no memory for scratch",
      transient: true,
      details: { cause: "outOfMemory", ops: ["a", "c"] },
    });
  });
});
