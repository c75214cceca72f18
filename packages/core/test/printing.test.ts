// console.log and JSON.stringify show what an object is and where it lies, never its internals.
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { openCheckpoint, printAsJson, writeSafetensors } from "../src/index.ts";
import { testDevice, testFolder } from "./helpers.ts";
import { increment, probeLibrary } from "./kernels/probe.ts";

describe("objects show what and where they are", () => {
  const device = testDevice({ threads: 1 });
  const flat = (value: unknown) => inspect(value, { breakLength: Number.POSITIVE_INFINITY });
  const tensor = device.tensor("f32", [2, 8]);
  const file = `${testFolder()}/model.safetensors`;
  writeSafetensors(file, [["a", { dtype: "f32", shape: [2], data: new Float32Array(2) }]]);

  it("a tensor", () => {
    const view = tensor.slice(1, 2);
    const json = {
      type: "Tensor",
      dtype: "f32",
      shape: [1, 8],
      device: "cpu",
      buffer: { byteLength: 64, readOnly: false },
      byteOffset: 32,
      disposed: false,
    };
    expect(JSON.parse(JSON.stringify(view))).toEqual(json);
    expect(flat(view)).toBe(
      "Tensor { dtype: 'f32', shape: [ 1, 8 ], device: 'cpu', buffer: { byteLength: 64, readOnly: false }, byteOffset: 32, disposed: false }",
    );
    expect(flat({ logits: { values: [[view]] } })).toBe("{ logits: { values: [ [Array] ] } }");
    expect(inspect({ view }, { depth: 0 })).toBe("{ view: [Tensor] }");
  });

  it("every other kind", async () => {
    const arena = device.arena(1024);
    const { limits, name, level } = device;
    const encoder = device.encoder({ arena });
    const out = increment(encoder, { x: device.tensor("u32", [4]) });
    const before = flat(encoder);
    const recording = encoder.finish();
    const submission = recording.replay();
    const inFlight = flat(submission);
    const { ms } = await submission;
    using checkpoint = await openCheckpoint(device, file);
    const block = device.encoder().block([out]);
    const shown = [
      device,
      out.buffer,
      arena,
      recording,
      block,
      submission,
      checkpoint,
      device.library(probeLibrary),
    ].map(flat);
    expect([before, inFlight, ...shown]).toEqual([
      "CommandEncoder { device: 'cpu', state: 'recording', barriers: 'auto', dispatches: 1 }",
      "Submission { state: 'committed' }",
      `Device { kind: 'cpu', name: ${inspect(name)}, level: '${level}', threads: ${limits.threads}, disposed: false }`,
      "Buffer { byteLength: 1024, readOnly: false, device: 'cpu', disposed: false }",
      "Arena { device: 'cpu', byteLength: 1024, used: 256, peakBytes: 256, disposed: false }",
      "Recording { device: 'cpu', dispatches: 1, barriers: 0, disposed: false }",
      "Block { device: 'cpu', tensors: 1, dispatches: 0 }",
      `Submission { state: 'completed', ms: ${inspect(ms)} }`,
      `Checkpoint { path: '${file}', device: 'cpu', tensors: 1, byteLength: ${checkpoint.byteLength}, disposed: false }`,
      `Library { name: 'probe', url: '${probeLibrary.url}' }`,
    ]);
    for (const object of [device, out, arena, encoder, recording, block, submission, checkpoint])
      expect(JSON.parse(JSON.stringify(object))).toHaveProperty("type", object.constructor.name);
  });

  it("objects with a prototype of ours, as mocks have", () => {
    expect(flat([new Proxy(tensor, {}), Object.create(tensor)])).toBe(
      "[ [Proxy over a Tensor], [Object over a Tensor] ]",
    );
    expect(flat(new Proxy(device, {}))).toBe("[Proxy over a Device]");
  });

  it("disposed ones too", () => {
    const gone = testDevice();
    const objects = [gone, gone.tensor("f32", [1]), gone.arena(256), gone.encoder().finish(), gone.encoder()];
    gone.dispose();
    for (const object of objects) expect([flat(object), JSON.stringify(object)]).not.toContain("undefined");
    expect(objects.slice(0, 4).map((object) => (object.toJSON() as { disposed: boolean }).disposed)).toEqual(
      Array(4).fill(true),
    );
  });

  it("classes of others by the same helper", () => {
    class Mine {
      static {
        printAsJson(Mine);
      }
      readonly secret = 1;
      toJSON() {
        return { type: "Mine", tokens: 3 };
      }
    }
    expect(flat(new Mine())).toBe("Mine { tokens: 3 }");
  });
});
