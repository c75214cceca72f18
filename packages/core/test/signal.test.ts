import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import type { CommitOptions } from "../src/index.ts";
import { caught, message, rejected, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";

describe("options of a commit", () => {
  const device = testDevice();
  const x = device.tensor("u32", [4]);
  const encoder = (microseconds = 0) => {
    const made = device.encoder();
    increment(made, { x, out: x }, { microseconds });
    return made;
  };

  it("are known", () => {
    const recording = encoder().finish();
    const wrong: [CommitOptions, string][] = [
      [{ profiles: true } as never, "`profiles` must be one of profile, signal, got an unknown option"],
      [{ profile: 1 } as never, "`profile` must be a boolean, got 1"],
      [{ signal: "now" } as never, "`signal` must be an AbortSignal, got now"],
      [{ signal: null } as never, "`signal` must be an AbortSignal, got null"],
      [null as never, "`options` must be an object, got null"],
    ];
    const { submissions } = device.counters;
    for (const [options, text] of wrong) {
      const known = text.replace("signal, got", "signal, keep, got");
      expect(message(() => encoder().commit(options))).toBe(`encoder.commit: ${known}`);
      expect(message(() => recording.replay(options))).toBe(`recording.replay: ${text}`);
    }
    expect(device.counters.submissions).toBe(submissions);
  });

  it("are read once, before anything is decided", async () => {
    const { submissions } = device.counters;
    const one = encoder();
    let reads = 0;
    const options = {
      get profile() {
        reads++;
        void one.commit();
        return false;
      },
    };
    expect(message(() => one.commit(options))).toBe(
      "encoder.commit: `encoder` must be recording, got a committed encoder — make a new one with device.encoder()",
    );
    expect([reads, device.counters.submissions]).toEqual([1, submissions + 1]);
    const finished = encoder();
    expect(
      message(() =>
        finished.commit({
          get signal() {
            finished.finish();
            return undefined;
          },
        }),
      ),
    ).toContain("got a finished encoder");
    const recording = encoder().finish();
    const disposing = {
      get profile() {
        recording.dispose();
        return false;
      },
    };
    expect(message(() => recording.replay(disposing))).toBe("the recording has been disposed");
    expect(device.counters.submissions).toBe(submissions + 1);
    await device.encoder().commit();
  });
});

describe("an AbortSignal", () => {
  const device = testDevice();
  const x = device.tensor("u32", [4]);
  const reason = new Error("enough");
  const aborted = AbortSignal.abort(reason);
  const encoder = (microseconds = 0) => {
    const made = device.encoder();
    increment(made, { x, out: x }, { microseconds });
    return made;
  };
  const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

  it("that is aborted before keeps everything from being submitted", async () => {
    const { submissions } = device.counters;
    const one = encoder();
    expect(caught(() => one.commit({ signal: aborted }))).toBe(reason);
    const recording = encoder().finish();
    expect(caught(() => recording.replay({ signal: aborted }))).toBe(reason);
    expect(device.counters.submissions).toBe(submissions);
    const [before] = x.readSync.call(device.tensor("u32", [1])) as Uint32Array;
    expect(before).toBe(0);
    await one.commit();
    await recording.replay();
    expect([...x.readSync()]).toEqual([2, 2, 2, 2]);
    for (const read of [x.read({ signal: aborted }), x.readNumbers({ signal: aborted })])
      expect(await rejected(read)).toBe(reason);
    expect(await rejected(x.buffer.read(0, 4, { signal: aborted }))).toBe(reason);
  });

  it("that is aborted meanwhile ends the waiting, and the device its work", async () => {
    x.write([0, 0, 0, 0]);
    const controller = new AbortController();
    const { signal } = controller;
    const submission = encoder(30_000).commit({ signal });
    const reads = [x.read({ signal }), x.readNumbers({ signal }), x.buffer.read(0, 4, { signal })];
    const waits = [submission, ...reads].map(rejected);
    const plain = x.read();
    await Promise.resolve();
    expect(listeners(signal)).toBeGreaterThanOrEqual(4);
    controller.abort(reason);
    expect(submission.state).toBe("committed");
    expect(new Set(await Promise.all(waits))).toEqual(new Set([reason]));
    expect(submission.state).toBe("committed");
    expect(caught(() => submission.waitSync())).toBe(reason);
    expect([...(await plain)]).toEqual([1, 1, 1, 1]);
    expect(submission.state).toBe("completed");
    expect(await rejected(submission)).toBe(reason);
    expect(submission.waitSync().ms).toBeGreaterThan(20);
    expect(listeners(signal)).toBe(0);
  });

  it("is let go when nothing is waited for any more", async () => {
    const { signal } = new AbortController();
    const recording = encoder(2000).finish();
    for (let i = 0; i < 3; i++) {
      const submission = recording.replay({ signal });
      const read = x.read({ signal });
      await Promise.all([submission, submission, read, x.readNumbers({ signal })]);
      expect(listeners(signal)).toBe(0);
    }
  });

  it("that is aborted after the end changes nothing", async () => {
    const controller = new AbortController();
    const late = encoder().commit({ signal: controller.signal });
    await x.read();
    controller.abort(reason);
    expect((await late).ms).toBeGreaterThanOrEqual(0);
  });

  it("has options of a known name", async () => {
    expect((await rejected(x.read({ signals: aborted } as never))).message).toBe(
      "buffer.read: `signals` must be one of signal, got an unknown option",
    );
    expect((await rejected(x.buffer.read(0, 4, { signal: 1 } as never))).message).toBe(
      "buffer.read: `signal` must be an AbortSignal, got 1",
    );
  });
});
