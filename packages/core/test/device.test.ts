import { describe, expect, it } from "vitest";
import { cpuLevels, Device, type MlxtsError } from "../src/index.ts";
import { caught, message, testDevice, under } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";

describe("device", () => {
  const device = testDevice();

  it("tells what it is", () => {
    expect(device.kind).toBe("cpu");
    expect(device.name).not.toBe("");
    expect(cpuLevels()).toContain(device.level);
    expect(device.unifiedMemory).toBe(true);
    for (const [name, value] of Object.entries(device.limits))
      expect(Math.min(...[value].flat()), name).toBeGreaterThan(0);
    expect(Object.isFrozen(device.limits)).toBe(true);
    expect(Object.isFrozen(device.limits.maxThreadgroupsPerAxis)).toBe(true);
  });

  it("is the CPU when nothing is asked for and there is no GPU", () => {
    using open = under({ MLXTS_CUDA_DRIVER: "./none.so" }, () => Device.open());
    expect(open.kind).toBe("cpu");
  });

  it("is no CUDA device without a driver", () => {
    const error = caught(() => under({ MLXTS_CUDA_DRIVER: "./none.so" }, () => Device.open("cuda")));
    expect((error as unknown as MlxtsError).code).toBe("DeviceNotFound");
    expect(error.message).toMatch(/^no device found: cuda \(no NVIDIA driver: .*none\.so/);
  });

  it("says what it tried when there is none of a kind", () => {
    const error = caught(() => Device.open("metal")) as unknown as MlxtsError;
    expect(error.code).toBe("DeviceNotFound");
    expect(error.message).toBe("no device found: metal (this build has no metal device)");
    expect(error.details.tried).toEqual([{ kind: "metal", reason: "this build has no metal device" }]);
    expect(error.transient).toBe(false);
  });

  it.each([0, -1, 1.5, 1025, Number.NaN])("refuses %s threads", (threads) => {
    expect(message(() => Device.open("cpu", { threads }))).toBe(
      `Device.open: \`threads\` must be an integer from 1 to 1024, got ${threads}`,
    );
  });

  it("refuses a level that the processor lacks", () => {
    expect(message(() => Device.open("cpu", { level: "avx9" }))).toBe(
      `Device.open: \`level\` must be one of ${cpuLevels().join(", ")} on this processor, got avx9`,
    );
  });

  it("opens several at once, whose tensors do not mix", async () => {
    using other = Device.open("cpu", { threads: 2 });
    const x = other.tensor("u32", [4]);
    const encoder = device.encoder();
    expect(message(() => increment(encoder, { x }))).toBe(
      "increment: `x` must belong to the encoder's device, got a tensor of another device",
    );
    expect(message(() => device.encoder({ arena: other.arena(1024) }))).toBe(
      "device.encoder: `arena` must belong to the encoder's device, got an arena of another device",
    );
    await encoder.commit();
  });

  it("counts", async () => {
    using open = Device.open("cpu");
    const x = open.tensor("u32", [1024]);
    expect(open.counters).toMatchObject({ liveBuffers: 1, liveBytes: 4096, peakBytes: 4096 });
    const encoder = open.encoder();
    increment(encoder, { x, out: x });
    increment(encoder, { x, out: x });
    encoder.barrier();
    increment(encoder, { x, out: x });
    await encoder.commit();
    expect(open.counters).toEqual({
      dispatches: 3,
      manualBarriers: 1,
      automaticBarriers: 1,
      fusedPairs: 0,
      movedNodes: 0,
      submissions: 1,
      waits: 0,
      pipelines: 1,
      copiedTensors: 0,
      liveBuffers: 1,
      liveBytes: 4096,
      peakBytes: 4096,
    });
    x.dispose();
    expect(open.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0, peakBytes: 4096 });
    open.resetCounters();
    expect(open.counters).toMatchObject({ dispatches: 0, submissions: 0, pipelines: 0, peakBytes: 0 });
  });

  it("is disposed once and for all, with everything made from it", async () => {
    const gone = Device.open("cpu");
    const tensor = gone.tensor("u32", [4]);
    const arena = gone.arena(1024);
    const scratch = arena.alloc("u32", [4]);
    const encoder = gone.encoder();
    increment(encoder, { x: tensor });
    const recorder = gone.encoder();
    increment(recorder, { x: tensor });
    const recording = recorder.finish();
    gone.dispose();
    gone.dispose();
    expect([gone.disposed, tensor.disposed, arena.disposed, scratch.disposed, recording.disposed]).toEqual(
      Array(5).fill(true),
    );
    const calls: Record<string, () => unknown> = {
      buffer: () => gone.buffer(1),
      bufferFrom: () => gone.bufferFrom(new Uint8Array(1)),
      wrap: () => gone.wrap(new Uint8Array(1)),
      tensor: () => gone.tensor("f32", [1]),
      arena: () => gone.arena(16),
      alloc: () => arena.alloc("f32", [1]),
      encoder: () => gone.encoder(),
      counters: () => gone.counters,
      resetCounters: () => gone.resetCounters(),
      commit: () => encoder.commit(),
      finish: () => encoder.finish(),
      barrier: () => encoder.barrier(),
      op: () => increment(encoder, { x: tensor }),
      replay: () => recording.replay(),
      readSync: () => tensor.readSync(),
      write: () => tensor.write([1, 2, 3, 4]),
      typedArray: () => tensor.typedArray(),
      bufferReadSync: () => tensor.buffer.readSync(),
      bufferWrite: () => tensor.buffer.write(new Uint8Array(1)),
      arrayBuffer: () => tensor.buffer.arrayBuffer(),
    };
    for (const [name, call] of Object.entries(calls)) expect(caught(call).code, name).toBe("Disposed");
    await expect(gone.mapFile("x", 1)).rejects.toMatchObject({ code: "Disposed" });
    await expect(tensor.read()).rejects.toMatchObject({ code: "Disposed" });
    await expect(tensor.buffer.read()).rejects.toMatchObject({ code: "Disposed" });
    for (const child of [tensor, tensor.buffer, arena, recording]) child.dispose();
  });
});
