import { describe, expect, it } from "vitest";
import { Tensor } from "../src/index.ts";
import { Recorded } from "../src/recorded.ts";
import { message, rejected, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";

const notRun = (op: string, call: string, argument = "tensor") =>
  `${op}: \`${argument}\` must have been computed, got what is recorded and has not run — call ${call} first`;

it("a recording's final form decides what it writes", () => {
  const range = (begin: number) => ({ begin, end: begin + 16 });
  const writing = (begin: number) => [{ label: "", reads: [], writes: [range(begin)] }];
  const recorded = new Recorded(writing(0));
  expect([recorded.writes(range(0)), recorded.writes(range(64))]).toEqual([true, false]);
  recorded.replace(writing(64));
  expect([recorded.writes(range(0)), recorded.writes(range(64))]).toEqual([false, true]);
});

describe("results that are not there yet", () => {
  const device = testDevice();
  const three = () => [0, 1, 2].map(() => device.tensor("u32", [4]));

  it("cannot be read before the commit", async () => {
    const encoder = device.encoder();
    const x = device.tensor("u32", [4], [1, 2, 3, 4]);
    const out = increment(encoder, { x });
    const call = "encoder.commit()";
    expect((await rejected(out.read())).message).toBe(notRun("tensor.read", call));
    expect((await rejected(out.readNumbers())).message).toBe(notRun("tensor.readNumbers", call));
    expect(message(() => out.readSync())).toBe(notRun("tensor.readSync", call));
    expect(message(() => out.typedArray())).toBe(notRun("tensor.typedArray", call));
    expect(message(() => out.slice(3, 4).readSync())).toBe(notRun("tensor.readSync", call));
    expect(message(() => out.cast("u8").readSync())).toBe(notRun("tensor.readSync", call));
    expect((await rejected(out.buffer.read())).message).toBe(notRun("buffer.read", call, "range"));
    expect(message(() => out.buffer.readSync())).toBe(notRun("buffer.readSync", call, "range"));
    expect([...x.readSync()]).toEqual([1, 2, 3, 4]);
    void encoder.commit();
    expect([...(await out.read())]).toEqual([2, 3, 4, 5]);
    expect([...out.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("are known by their memory, not by the tensor", () => {
    const shared = new SharedArrayBuffer(64);
    const [a, b] = [0, 1].map(() => new Tensor(device.wrap(new Uint32Array(shared)), "u32", [16])) as [Tensor, Tensor];
    const encoder = device.encoder();
    increment(encoder, { x: a.slice(0, 4) as never, out: a.slice(4, 8) as never });
    expect(message(() => b.slice(7, 9).readSync())).toBe(notRun("tensor.readSync", "encoder.commit()"));
    expect([...b.slice(8, 16).readSync()]).toEqual(Array(8).fill(0));
    expect([...b.slice(0, 4).readSync()]).toEqual(Array(4).fill(0));
    encoder.dispose();
    expect([...b.readSync()]).toEqual(Array(16).fill(0));
  });

  it("are known while the recording goes on", () => {
    const encoder = device.encoder();
    const [x, y, z] = three() as [Tensor<"u32">, Tensor<"u32">, Tensor<"u32">];
    increment(encoder, { x, out: y });
    expect([...z.readSync()]).toEqual([0, 0, 0, 0]);
    increment(encoder, { x: y, out: z });
    expect(message(() => z.readSync())).toBe(notRun("tensor.readSync", "encoder.commit()"));
    expect(message(() => y.readSync())).toBe(notRun("tensor.readSync", "encoder.commit()"));
    encoder.commit().waitSync();
    expect([...z.readSync()]).toEqual([2, 2, 2, 2]);
  });

  it("may be written before the commit: they are inputs then", async () => {
    const encoder = device.encoder();
    const [x] = three() as [Tensor<"u32">];
    increment(encoder, { x, out: x });
    x.write([5, 5, 5, 5]);
    await encoder.commit();
    expect([...x.readSync()]).toEqual([6, 6, 6, 6]);
  });

  it("cannot be read before the first replay", async () => {
    for (const arena of [undefined, device.arena(4096)]) {
      const encoder = device.encoder(arena && { arena });
      const x = device.tensor("u32", [4], [1, 2, 3, 4]);
      const out = increment(encoder, { x });
      const unused = encoder.empty("u32", [4]);
      const recording = encoder.finish();
      const call = "recording.replay()";
      expect((await rejected(out.read())).message).toBe(notRun("tensor.read", call));
      expect(message(() => out.view(1, [2]).readSync())).toBe(notRun("tensor.readSync", call));
      expect(unused.readSync()).toHaveLength(4);
      expect((await rejected((async () => recording.replay({ signal: AbortSignal.abort() }))())).name).toBe(
        "AbortError",
      );
      expect(message(() => out.readSync())).toBe(notRun("tensor.readSync", call));
      void recording.replay();
      expect([...(await out.read())]).toEqual([2, 3, 4, 5]);
      recording.dispose();
      expect([...out.readSync()]).toEqual([2, 3, 4, 5]);
    }
  });

  it("cannot be read before the first replay where a read was refused before the recording was optimized", async () => {
    const [x, y] = three() as [Tensor, Tensor, Tensor];
    const encoder = device.encoder({ optimize: true });
    const kept = increment(encoder, { x: x as never });
    increment(encoder, { x: kept, out: y as never });
    expect(message(() => y.readSync())).toBe(notRun("tensor.readSync", "encoder.commit()"));
    const recording = encoder.finish({ keep: [kept] });
    expect(message(() => kept.readSync())).toBe(notRun("tensor.readSync", "recording.replay()"));
    await recording.replay();
    expect([...kept.readSync()]).toEqual([1, 1, 1, 1]);
  });

  it("may be written by others than their recording", async () => {
    const outputs = () => {
      const encoder = device.encoder();
      const [x, y] = three() as [Tensor<"u32">, Tensor<"u32">];
      const out = increment(encoder, { x });
      return { x, y, out, recording: encoder.finish() };
    };
    const host = outputs();
    host.out.view(0, [4]).write([1, 2, 3, 4]);
    expect([...host.out.readSync()]).toEqual([1, 2, 3, 4]);
    const encoded = outputs();
    const encoder = device.encoder();
    increment(encoder, { x: encoded.y, out: encoded.out });
    expect(message(() => encoded.out.readSync())).toBe(notRun("tensor.readSync", "encoder.commit()"));
    await encoder.commit();
    expect([...encoded.out.readSync()]).toEqual([1, 1, 1, 1]);
    const rebound = outputs();
    await rebound.recording.rebind([[rebound.x, rebound.y]]).replay();
    expect([...rebound.out.readSync()]).toEqual([1, 1, 1, 1]);
  });

  it("do not hide what another encoder or the host has computed since", async () => {
    const [x, out, replayed] = three() as [Tensor<"u32">, Tensor<"u32">, Tensor<"u32">];
    const kept = device.encoder();
    increment(kept, { x, out: replayed });
    const recording = kept.finish();
    // As after an error between two ops: the encoder is neither committed nor disposed.
    const lost = device.encoder();
    increment(lost, { x, out });
    increment(lost, { x, out: replayed });
    const call = "encoder.commit()";
    expect(message(() => out.readSync())).toBe(notRun("tensor.readSync", call));
    const encoder = device.encoder();
    increment(encoder, { x: x.view(0, [2]), out: out.view(0, [2]) });
    expect(message(() => out.view(0, [2]).readSync())).toBe(notRun("tensor.readSync", call));
    await encoder.commit();
    expect([...(await out.view(0, [2]).read())]).toEqual([1, 1]);
    expect(message(() => out.readSync())).toBe(notRun("tensor.readSync", call));
    out.view(2, [2]).write([7, 8]);
    expect([...out.readSync()]).toEqual([1, 1, 7, 8]);
    await recording.replay();
    expect([...replayed.readSync()]).toEqual([1, 1, 1, 1]);
    // It is recorded again, and so must be computed again.
    increment(lost, { x: replayed, out });
    expect(message(() => out.readSync())).toBe(notRun("tensor.readSync", call));
    await lost.commit();
    expect([...out.readSync()]).toEqual([2, 2, 2, 2]);
  });

  it("do not hide what a tensor held before a recording was finished", async () => {
    const state = device.tensor("u32", [4], [1, 2, 3, 4]);
    const encoder = device.encoder();
    increment(encoder, { x: state, out: state });
    const recording = encoder.finish();
    expect([...(await state.read())]).toEqual([1, 2, 3, 4]);
    await recording.replay();
    expect([...state.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("are forgotten with what would have computed them", async () => {
    const abandoned = device.encoder();
    const first = increment(abandoned, { x: device.tensor("u32", [4]) });
    abandoned.dispose();
    expect([...first.readSync()]).toEqual([0, 0, 0, 0]);
    const encoder = device.encoder();
    const second = increment(encoder, { x: device.tensor("u32", [4]) });
    encoder.finish().dispose();
    expect([...second.readSync()]).toEqual([0, 0, 0, 0]);
    const end = await runChild("lost_encoders");
    expect(end).toEqual({ code: 0, signal: null, stdout: "true false true false", stderr: "" });
  });

  it("are found quickly", () => {
    const encoder = device.encoder();
    const count = 20_000;
    const x = device.tensor("u32", [4]);
    const all = device.tensor("u32", [count, 4]);
    const rows = Array.from({ length: count }, (_, i) => all.slice(i, i + 1).reshape([4]));
    for (const out of rows) increment(encoder, { x, out });
    const start = performance.now();
    for (const row of rows) expect(() => row.readSync()).toThrow(RangeError);
    for (let i = 0; i < count; i++) x.readSync();
    // Searching all dispatches for each of them would take minutes.
    expect(performance.now() - start).toBeLessThan(10_000);
    encoder.dispose();
  });
});
