// Checked values cannot change afterwards: objects are frozen, and each value that a caller passes is read once.
import { describe, expect, it } from "vitest";
import { type Device, defineKernel, defineOp, Tensor } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { rangeOf } from "./internals.ts";
import { increment, incrementKernel, probeLibrary } from "./kernels/probe.ts";

/** An array whose iterator gives other dimensions than its elements. */
function lying(real: readonly number[], told: readonly number[]): number[] {
  return Object.defineProperty([...real], Symbol.iterator, { value: () => told[Symbol.iterator]() });
}

/** An array that gives its dimensions the first time and others afterwards. */
function changing(first: readonly number[], then: readonly number[]): number[] {
  let reads = 0;
  return new Proxy([...first], {
    get(target, name) {
      if (name === "length") return first.length;
      return typeof name === "string" && /^\d+$/.test(name)
        ? (reads++ < first.length ? first : then)[Number(name)]
        : Reflect.get(target, name);
    },
  });
}

/** An object whose property changes from its second reading on. */
function flipping<T extends object>(object: T, name: keyof T, then: unknown): T {
  const first = object[name];
  let reads = 0;
  return Object.defineProperty({ ...object }, name, { get: () => (reads++ === 0 ? first : then), enumerable: true });
}

describe("what is checked and then used", () => {
  const device = testDevice();
  const small = device.tensor("u32", [4], [1, 2, 3, 4]);
  const big = device.tensor("u32", [4096]);

  it.each<[string, () => object]>([
    ["tensor", () => device.tensor("u32", [4])],
    ["view", () => small.view(0, [2])],
    ["shape", () => small.shape as object],
    ["buffer", () => small.buffer],
    ["device", () => device],
    ["limits", () => device.limits],
    ["encoder", () => device.encoder()],
    ["recording", () => device.encoder().finish()],
    ["arena", () => device.arena(256)],
    ["submission", () => device.encoder().commit()],
    ["library", () => device.library(probeLibrary)],
    ["library definition", () => probeLibrary],
    ["kernel", () => incrementKernel],
    ["buffers of a kernel", () => incrementKernel.buffers],
    ["params of a kernel", () => incrementKernel.params],
    ["variants of a kernel", () => incrementKernel.variants as object],
    ["pairs of a kernel", () => incrementKernel.inPlace as object],
    ["buffers at any byte of a kernel", () => incrementKernel.anyByte as object],
    ["early buffers of a kernel", () => incrementKernel.early as object],
    ["op", () => increment],
    ["descriptor of an op", () => increment.op],
    ["input of an op", () => increment.op.inputs.x as object],
    ["dtypes of an op", () => (increment.op.inputs.x as { dtype: object }).dtype],
    ["parameter of an op", () => increment.op.params.groups as object],
  ])("cannot be overwritten: %s", (_, make) => {
    const object = make();
    expect(Object.isFrozen(object)).toBe(true);
    for (const name of Object.keys(object)) expect(() => Object.assign(object, { [name]: 1 })).toThrow(TypeError);
    expect(() => Object.defineProperty(object, "disposed", { value: false })).toThrow(TypeError);
  });

  it("keeps a declaration that is changed afterwards", () => {
    const declaration = {
      library: probeLibrary,
      name: "increment",
      variants: ["u32"],
      buffers: { x: "read", out: "write" } as Record<string, "read" | "write">,
      params: { perGroup: "u32", microseconds: "u32" } as const,
      inPlace: [["out", "x"]] as [string, string][],
      launch: { cpu: (_: object) => ({ threadgroups: [1, 1, 1] as const }) },
    };
    const kernel = defineKernel(declaration);
    declaration.buffers.out = "read";
    declaration.variants.push("f32");
    (declaration.inPlace[0] as [string, string])[1] = "out";
    expect([kernel.buffers.out, kernel.variants, kernel.inPlace]).toEqual(["write", ["u32"], [["out", "x"]]]);

    const inputs = { x: { dtype: ["u32"] as ("u32" | "f32")[], shape: "N" } };
    const op = defineOp({ name: "copied", summary: "", inputs, outputs: {}, params: {}, encode: () => {} });
    inputs.x.dtype.push("f32");
    const x = device.tensor("f32", [4]);
    expect(message(() => op(device.encoder(), { x }))).toBe("copied: `x` must have dtype u32, got f32");
  });

  it("takes each dimension of a shape once", () => {
    expect(device.tensor("f32", lying([2, 2], [64, 64])).shape).toEqual([2, 2]);
    expect(small.view(0, lying([2], [4096])).shape).toEqual([2]);
    expect(small.reshape(lying([2, 2], [4096, 4096])).shape).toEqual([2, 2]);
    expect(device.tensor("u32", changing([2, 3], [4096, 4096])).shape).toEqual([2, 3]);
    expect(small.view(1, changing([3], [4])).shape).toEqual([3]);
    expect(small.reshape(changing([2, 2], [4096, 4096])).shape).toEqual([2, 2]);
    expect(device.arena(1 << 16).alloc("u32", changing([4], [1 << 20])).shape).toEqual([4]);
    expect(message(() => device.tensor("f32", [{ valueOf: () => 2 } as never]))).toBe(
      "device.tensor: `shape` must have dimensions that are integers from 1 to 2147483647, got [Object]",
    );
  });

  it("reads the byte offset of a tensor once", () => {
    const buffer = device.buffer(64);
    const tensor = new Tensor(buffer, "f32", [4], flipping({ byteOffset: 16 }, "byteOffset", 1 << 30));
    expect(tensor.byteOffset).toBe(16);
    expect(message(() => new Tensor(buffer, "f32", [4], { offset: 4 } as never))).toBe(
      "Tensor: `offset` must be one of byteOffset, owned, arena, generation, anyByte, got an unknown option",
    );
    class Liar extends Tensor {}
    expect(message(() => new Liar(buffer, "f32", [1]))).toBe(
      "Tensor: `constructor` must be called for a Tensor itself, got a subclass",
    );
  });

  it("takes tensors from their constructor only", () => {
    const like = { ...small, shape: [4096], bytes: 4, device, range: rangeOf(small), disposed: false };
    for (const fake of [like, Object.create(small), Object.create(Tensor.prototype), new Proxy(small, {})]) {
      expect(fake instanceof Tensor).toBe(false);
      expect(caught(() => increment(device.encoder(), { x: fake as never }))).toMatchObject({
        code: "InvalidArgument",
      });
    }
    expect(message(() => increment(device.encoder(), { x: new Proxy(small, {}) as never }))).toBe(
      "increment: `x` must be a Tensor, got a Proxy",
    );
  });

  it("views of a tensor from before a reset stay dead", () => {
    const arena = device.arena(1024);
    const before = arena.alloc("u32", [4]);
    arena.reset();
    expect([before.disposed, before.view(0, [2]).disposed, before.reshape([2, 2]).disposed]).toEqual([
      true,
      true,
      true,
    ]);
  });

  const pair = defineOp({
    name: "pair",
    summary: "out = x + 1, of a record",
    inputs: {
      record: {
        type: "Pair",
        tensors: { x: { dtype: ["u32"], shape: "N" } },
        attributes: { groups: { kind: "number", integer: true, min: 1 } },
      },
    },
    outputs: { out: { dtype: ["u32"], shape: "N", inPlace: ["x"] } },
    params: { perGroup: { kind: "number", integer: true, min: 1 } },
    rules({ dims, inputs, options, fail }) {
      if (inputs.record.groups * options.perGroup !== dims.N) fail("groups", "cover N", inputs.record.groups);
    },
    encode({ encoder, op, inputs, outputs, options }) {
      encoder.dispatch(incrementKernel, {
        op,
        variant: "u32",
        buffers: { x: inputs.record.x, out: outputs.out },
        params: { perGroup: options.perGroup, microseconds: 0 },
        sizes: { groups: inputs.record.groups },
      });
    },
  });

  it.each<[string, (device: Device) => [inputs: object, options: object]]>([
    ["a record", () => [flipping({ record: { x: small, groups: 4 } }, "record", { x: big, groups: 4096 }), {}]],
    ["a tensor of a record", () => [{ record: flipping({ x: small, groups: 4 }, "x", big) }, {}]],
    ["an attribute of a record", () => [{ record: flipping({ x: small, groups: 4 }, "groups", 4096) }, {}]],
    ["an option", () => [{ record: { x: small, groups: 4 } }, flipping({ perGroup: 1 }, "perGroup", 4096)]],
    [
      "an output",
      () => [flipping({ record: { x: small, groups: 4 }, out: device.tensor("u32", [4]) }, "out", big), {}],
    ],
  ])("an op reads %s once", async (_, make) => {
    const [inputs, options] = make(device);
    const encoder = device.encoder();
    const out = pair(encoder, inputs as never, { perGroup: 1, ...options });
    await encoder.commit();
    expect([...out.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("an op reads its options once", async () => {
    const encoder = device.encoder();
    const out = pair(encoder, { record: { x: small, groups: 4 } }, flipping({ perGroup: 1 }, "perGroup", 4096));
    await encoder.commit();
    expect([...out.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("a dispatch reads its arguments once, and is replayed as it was recorded", async () => {
    const out = device.tensor("u32", [4]);
    const target = device.tensor("u32", [4]);
    const good = {
      variant: "u32",
      buffers: { x: small, out },
      params: { perGroup: 1, microseconds: 0 },
      sizes: { groups: 4 },
    };
    const wrong = {
      variant: "f32",
      buffers: { x: big, out: big },
      params: { perGroup: 4096, microseconds: 0 },
      sizes: { groups: 4096 },
    };
    for (const name of Object.keys(good) as (keyof typeof good)[]) {
      const args = flipping(good, name, wrong[name]);
      const encoder = device.encoder();
      encoder.dispatch(incrementKernel, args);
      await encoder.commit();
      expect([...out.readSync()], name).toEqual([2, 3, 4, 5]);
    }
    const args = {
      ...good,
      buffers: flipping(good.buffers, "out", big),
      params: flipping(good.params, "perGroup", 4096),
      sizes: { groups: 4 },
    };
    const encoder = device.encoder();
    encoder.dispatch(incrementKernel, args);
    args.sizes.groups = 4096;
    Object.assign(args.buffers, { x: big });
    const recording = encoder.finish().rebind([[out, target]]);
    await recording.replay();
    expect([...target.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("the result of a launch rule is read once", async () => {
    const { library, name, variants, buffers, params } = incrementKernel;
    const launch = (_: object) => {
      const result = { threadgroups: [4, 1, 1] as const, threadsPerThreadgroup: [1, 1, 1] as const };
      const groups = new Proxy([4, 1, 1] as [number, number, number], {
        get(target, name) {
          const value = Reflect.get(target, name);
          if (name === "0") target[0] = 4096;
          return value;
        },
      });
      return flipping({ ...result, threadgroups: groups }, "threadgroups", [4096, 1, 1]);
    };
    const kernel = defineKernel({ library, name, variants, buffers, params, launch: { cpu: launch } });
    const out = device.tensor("u32", [4]);
    const encoder = device.encoder();
    const args = { variant: "u32", buffers: { x: small, out }, params: { perGroup: 1, microseconds: 0 }, sizes: {} };
    encoder.dispatch(kernel, args);
    await encoder.commit();
    expect([...out.readSync()]).toEqual([2, 3, 4, 5]);
  });

  it("the place of bytes to write is read once", () => {
    let looks = 0;
    class Growing extends Uint8Array {
      override get byteLength(): number {
        return looks++ === 0 ? 4 : 16;
      }
    }
    const buffer = device.buffer(16);
    buffer.write(new Growing(16).fill(1));
    expect([...new Uint8Array(buffer.readSync())]).toEqual([1, 1, 1, 1, ...Array(12).fill(0)]);
    class Short extends Float32Array {
      override get length(): number {
        return 2;
      }
    }
    const tensor = device.tensor("f32", [2]);
    expect(message(() => tensor.write(new Short(64)))).toBe("tensor.write: `data` must have 2 elements, got 64");
  });
});
