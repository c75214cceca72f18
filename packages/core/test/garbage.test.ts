// Every public function, called with values of every wrong kind: it succeeds, or throws an error that says what is wrong.
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import * as core from "../src/index.ts";
import { testDevice, testFolder } from "./helpers.ts";
import { increment, incrementKernel, probeLibrary } from "./kernels/probe.ts";

const revoked = () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};

const throwing = () =>
  Object.defineProperty({}, "constructor", {
    get: () => {
      throw new Error("the value's own");
    },
  });

const cyclic = () => {
  const array: unknown[] = [1];
  array.push(array);
  return array;
};

/** One of each kind of value that a caller may pass by mistake, made anew each time. */
const GARBAGE: Record<string, () => unknown> = {
  undefined: () => undefined,
  null: () => null,
  true: () => true,
  zero: () => 0,
  "a negative number": () => -1,
  "a fraction": () => 2.5,
  NaN: () => Number.NaN,
  infinity: () => Number.POSITIVE_INFINITY,
  "a huge number": () => 2 ** 60,
  "a bigint": () => 1n,
  "a string": () => "/dev/null/float32",
  "a symbol": () => Symbol("s"),
  "an empty object": () => ({}),
  "an object without prototype": () => Object.create(null),
  "an unknown option": () => ({ unknown: 1 }),
  "an object like a number": () => ({ valueOf: () => 4 }),
  "an empty array": () => [],
  "an array of strings": () => ["a", "b"],
  "a sparse array": () => Array(4),
  "an array in itself": cyclic,
  "a typed array": () => new Float64Array(3),
  "a big typed array": () => new BigUint64Array(4),
  "a function": () => () => 1,
  "a date": () => new Date(0),
  "a promise": () => Promise.resolve(),
  "an iterator that is none": () => ({ [Symbol.iterator]: () => 1 }),
  "an object that throws": throwing,
  "a Proxy": () => new Proxy({}, {}),
  "a revoked Proxy": revoked,
};

const CODES = new Set([
  "InvalidArgument",
  "Io",
  "BufferAllocation",
  "DeviceNotFound",
  "UnsupportedDtype",
  "Safetensors",
]);

/** Whether an error is one of ours, with a message that a caller understands. */
function typed(error: unknown): boolean {
  const ours = [core.MlxtsError, core.ArgumentTypeError, core.ArgumentRangeError].some((kind) => error instanceof kind);
  const { code, message } = error as core.MlxtsError;
  return ours && CODES.has(code) && message.length < 1000 && !/\b_[A-Z]\w+|\[object |undefined is not/.test(message);
}

type Call = { with: readonly unknown[]; call(...args: never[]): unknown };
/** A call with arguments that are right; each is replaced by each kind of garbage. */
const of = <A extends readonly unknown[]>(call: (...args: A) => unknown, ...args: A): Call => ({
  with: args,
  call: call as Call["call"],
});

describe("every public function of core refuses what it cannot take", async () => {
  const device = testDevice();
  const folder = testFolder();
  const file = join(folder, "model.safetensors");
  core.writeSafetensors(file, [["a", { dtype: "f32", shape: [2], data: new Float32Array(2) }]]);
  const checkpoint = await core.openCheckpoint(device, file);
  const tensor = device.tensor("u32", [4]);
  const { buffer } = tensor;
  const arena = device.arena(1 << 16);
  const recorded = () => {
    const encoder = device.encoder();
    increment(encoder, { x: tensor });
    return encoder.finish();
  };
  const recording = recorded();
  const block = device.encoder().block([tensor]);
  const quantizedContext = () => {
    const contexts: unknown[] = [];
    const plain = { dtype: ["f32"], shape: "R C" } as const;
    const takes = core.defineOp({
      ...{ name: "takes", summary: "a matrix", inputs: { q: { ...core.QUANTIZED, tensor: plain } } },
      ...{ outputs: {}, params: {}, encode: (context: unknown) => void contexts.push(context) },
    });
    const [weight, scales] = [device.tensor("u32", [2, 4]), device.tensor("f32", [2, 1])];
    const attributes = { bits: 4, groupSize: 32, mode: "affine" } as const;
    takes(device.encoder(), { q: { weight, scales, biases: device.tensor("f32", [2, 1]), ...attributes } });
    return contexts[0];
  };
  const gatheredContext = () => {
    const contexts: unknown[] = [];
    const inputs = { x: { dtype: ["f32"], shape: "T M K" }, rhsIndices: { dtype: ["u32"], shape: "T" } } as const;
    const takes = core.defineOp({
      ...{ name: "takes", summary: "pairs", inputs, outputs: {}, params: {} },
      ...{ encode: (context: unknown) => void contexts.push(context) },
    });
    takes(device.encoder(), { x: device.tensor("f32", [2, 1, 4]), rhsIndices: device.tensor("u32", [2]) });
    return contexts[0];
  };
  const fusion: core.FusionRule = {
    calls: { a: "increment", b: "increment" },
    links: { "b.x": "a.out" },
    into: increment,
    tensors: { x: "a.x", out: "b.out" },
    options: { groups: "a.groups" },
    when: { "a.groups": [1] },
  };
  const rule = core.defineFusion(fusion);
  const baked = device.bake(increment, { x: { dtype: "u32", shape: [4] } });
  const dispatch = {
    variant: "u32",
    buffers: { x: tensor, out: device.tensor("u32", [4]) },
    params: { perGroup: 1, microseconds: 0 },
    sizes: { groups: 4 },
  };
  const kernel = {
    library: probeLibrary,
    name: "name",
    variants: ["u32"],
    buffers: { x: "read" as const },
    params: { n: "u32" as const },
    constants: { shared: { rows: 1 } },
    faults: { bad: () => "`x` must be good, got bad" },
    inPlace: [["x", "x"]] as [["x", "x"]],
    anyByte: ["x"] as ["x"],
    early: ["x"] as ["x"],
    launch: { cpu: (_: object) => ({ threadgroups: [1, 1, 1] as const }) },
  };
  const op = {
    name: "name",
    summary: "",
    inputs: { x: { dtype: ["u32"] as ["u32"], shape: "N" } },
    outputs: { out: { dtype: ["u32"] as ["u32"], shape: "N" } },
    params: { n: { kind: "number" as const } },
    encode: () => {},
  };
  let files = 0;
  const writer = () => core.createSafetensors(join(folder, `out${files++}`), [{ name: "a", dtype: "u8", shape: [1] }]);
  /** The calls that take an object: one for each of its fields. */
  const fields = <T extends object>(name: string, object: T, call: (object: T) => unknown): Record<string, Call> =>
    Object.fromEntries(
      (Object.keys(object) as (keyof T)[]).map((field) => [
        `${name} ${String(field)}`,
        of((value: unknown) => call({ ...object, [field]: value }), object[field] as unknown),
      ]),
    );

  const fileOptions: core.FileOptions = { onProgress: () => undefined, signal: new AbortController().signal };
  const calls: Record<string, Call> = {
    arenaBytes: of(core.arenaBytes, "f32", [2]),
    openCheckpoint: of(core.openCheckpoint, device, file, fileOptions),
    ...fields("openCheckpoint", fileOptions, (options) => core.openCheckpoint(device, file, options)),
    "Device.open": of((kind, options) => core.Device.open(kind, options).dispose(), "cpu" as const, { threads: 1 }),
    ...fields(
      "Device.open",
      { threads: 1, level: device.level, order: "forward" as const, validate: true, poison: true },
      (options) => core.Device.open("cpu", options).dispose(),
    ),
    "device.buffer": of((bytes) => device.buffer(bytes).dispose(), 16),
    "device.bufferFrom": of((data) => device.bufferFrom(data), new Uint8Array(4)),
    "device.wrap": of((view) => device.wrap(view), new Uint8Array(new SharedArrayBuffer(16)) as ArrayBufferView),
    "device.mapFile": of((path, bytes, options) => device.mapFile(path, bytes, options), file, 8, fileOptions),
    ...fields("device.mapFile", fileOptions, (options) => device.mapFile(file, 8, options)),
    "device.tensor": of((dtype, shape, data) => device.tensor(dtype, shape, data), "f32" as core.Dtype, [2], [
      1, 2,
    ] as ArrayLike<number>),
    "device.tensor of integers": of((data) => device.tensor("i64", [2], data), [1, 2] as ArrayLike<number>),
    "device.arena": of((bytes) => device.arena(bytes), 1024),
    "device.encoder": of((options) => device.encoder(options), { arena }),
    ...fields("device.encoder", { barriers: "auto" as const, arena }, (options) => device.encoder(options)),
    "device.library": of((library) => device.library(library), probeLibrary),
    "library.has": of((name, variant) => device.library(probeLibrary).has(name, variant), "increment", "u32"),
    "buffer.read": of((at, bytes) => buffer.read(at, bytes), 0, 4),
    "buffer.readSync": of((at, bytes) => buffer.readSync(at, bytes), 0, 4),
    "buffer.write": of((data, at) => buffer.write(data, at), new Uint8Array(4) as ArrayBufferView, 0),
    Tensor: of(
      (buffer, dtype, shape, placement) => new core.Tensor(buffer, dtype, shape, placement),
      buffer,
      "u32" as core.Dtype,
      [2],
      { byteOffset: 4 },
    ),
    ...fields(
      "Tensor",
      { byteOffset: 4, owned: false, arena, generation: 0 },
      (placement) => new core.Tensor(buffer, "u32", [2], placement),
    ),
    "tensor.view": of((offset, shape) => tensor.view(offset, shape), 0, [2]),
    "tensor.reshape": of((shape) => tensor.reshape(shape), [2, 2]),
    "tensor.slice": of((begin, end) => tensor.slice(begin, end), 0, 2),
    "tensor.cast": of((dtype) => tensor.cast(dtype), "u8" as core.Dtype),
    "tensor.write": of((data) => tensor.write(data), [1, 2, 3, 4] as ArrayLike<number>),
    "arena.alloc": of((dtype, shape) => arena.alloc(dtype, shape), "f32" as core.Dtype, [2]),
    "arena.rewind": of((mark) => arena.rewind(mark), arena.mark()),
    ...fields("device.encoder, optimize,", { fuse: [rule], reorder: true, reuseScratch: true }, (optimize) =>
      device.encoder({ optimize }),
    ),
    "device.encoder, a rule": of((each) => device.encoder({ optimize: { fuse: [each] } }), rule),
    defineFusion: of((declaration) => core.defineFusion(declaration), fusion),
    ...fields("defineFusion", fusion, (declaration) => core.defineFusion(declaration)),
    "defineFusion, a call": of((a) => core.defineFusion({ ...fusion, calls: { ...fusion.calls, a } }), "increment"),
    "defineFusion, a link": of((x) => core.defineFusion({ ...fusion, links: { "b.x": x } }), "a.out"),
    "defineFusion, a tensor": of((x) => core.defineFusion({ ...fusion, tensors: { x } }), "a.x"),
    "defineFusion, an option": of((n) => core.defineFusion({ ...fusion, options: { groups: n } }), "a.groups"),
    "defineFusion, values": of((n) => core.defineFusion({ ...fusion, when: { "a.groups": n } }), [1]),
    "device.bake": of(
      (op, inputs, options) => device.bake(op, inputs, options),
      increment,
      { x: { dtype: "u32", shape: [4] } },
      {},
    ),
    "record.encode": of((encoder, tensors) => baked.encode(encoder, tensors), device.encoder(), {
      x: tensor,
      out: device.tensor("u32", [4]),
    }),
    "encoder.finish": of((options) => device.encoder().finish(options), { keep: [tensor] }),
    "encoder.finish, keep": of((keep) => device.encoder({ optimize: true }).finish({ keep }), [tensor]),
    "encoder.empty": of((dtype, shape) => device.encoder().empty(dtype, shape), "f32" as core.Dtype, [2]),
    "encoder.dispatch": of((kernel, args) => device.encoder().dispatch(kernel, args), incrementKernel, dispatch),
    ...fields("encoder.dispatch", { ...dispatch, op: "op" }, (args) =>
      device.encoder().dispatch(incrementKernel, args),
    ),
    ...fields("encoder.dispatch buffers", dispatch.buffers, (buffers) =>
      device.encoder().dispatch(incrementKernel, { ...dispatch, buffers }),
    ),
    ...fields("encoder.dispatch params", dispatch.params, (params) =>
      device.encoder().dispatch(incrementKernel, { ...dispatch, params }),
    ),
    ...fields("encoder.dispatch sizes", dispatch.sizes, (sizes) =>
      device.encoder().dispatch(incrementKernel, { ...dispatch, sizes }),
    ),
    "encoder.commit": of((options) => device.encoder().commit(options), { profile: true }),
    "recording.replay": of((options) => recording.replay(options), { profile: true }),
    "device.arena, options": of((options) => device.arena(1024, options), { grow: true }),
    "device.wrap, options": of((options) => device.wrap(new Uint8Array(new SharedArrayBuffer(16)), options), {
      readOnly: true,
    }),
    "encoder.block": of((tensors) => device.encoder().block(tensors), [tensor] as core.Tensor[]),
    "encoder.append": of(
      (block, tensors) => device.encoder().append(block, tensors),
      block as core.Block,
      [tensor] as core.Tensor[],
    ),
    "recording.rebind": of((pairs) => recording.rebind(pairs), [[tensor, tensor]] as [core.Tensor, core.Tensor][]),
    "recording.rebind, a pair": of((pair) => recording.rebind([pair]), [tensor, tensor] as [core.Tensor, core.Tensor]),
    "recording.binds": of((tensor) => recording.binds(tensor), tensor as core.Tensor),
    "recording.rebind, a tensor": of(
      (from, to) => recording.rebind([[from, to]]),
      tensor as core.Tensor,
      tensor as core.Tensor,
    ),
    "checkpoint.info": of((name) => checkpoint.info(name), "a"),
    "checkpoint.has": of((name) => checkpoint.has(name), "a"),
    "checkpoint.tensor": of((name, dtype) => checkpoint.tensor(name, dtype), "a", "f32" as core.Dtype),
    "checkpoint.tensorAtAnyByte": of((name) => checkpoint.tensorAtAnyByte(name), "a"),
    encodeNumbers: of(core.encodeNumbers, "u16", [1, 2]),
    decodeNumbers: of(core.decodeNumbers, "u16", new Uint16Array(2)),
    isDtype: of(core.isDtype, "f32" as unknown),
    isFloat: of(core.isFloat, "f32"),
    roundTo: of(core.roundTo, "f32", 1),
    wrongKind: of(core.wrongKind, "op", "argument", "rule", 1 as unknown, "remedy"),
    wrongValue: of(core.wrongValue, "op", "argument", "rule", 1 as unknown, "remedy"),
    checkOptionNames: of((op, options) => core.checkOptionNames<object>(op, options, { a: true } as never), "op", {
      a: 1,
    }),
    checkCallback: of(core.checkCallback, "op", "argument", (() => undefined) as unknown),
    checkSignal: of(core.checkSignal, "op", new AbortController().signal),
    readPlainFile: of(core.readPlainFile, file, 1 << 20),
    defineKernel: of((declaration) => core.defineKernel(declaration), kernel),
    ...fields("defineKernel", kernel, (declaration) => core.defineKernel(declaration)),
    "defineKernel, an access": of((x) => core.defineKernel({ ...kernel, buffers: { x } }), "read" as const),
    "defineKernel, a scalar": of((n) => core.defineKernel({ ...kernel, params: { n } }), "u32" as const),
    "defineKernel, a constant": of((rows) => core.defineKernel({ ...kernel, constants: { shared: { rows } } }), 1),
    "defineKernel, a fault": of(
      (bad) => core.defineKernel({ ...kernel, faults: { bad } }),
      () => "",
    ),
    "defineKernel, a pair": of((pair) => core.defineKernel({ ...kernel, inPlace: [pair] }), ["x", "x"] as ["x", "x"]),
    "defineKernel, an array": of(
      (x) => core.defineKernel({ ...kernel, scratch: { cpu: { x } }, launch: { gpu: kernel.launch.cpu } }),
      "f32" as const,
    ),
    "defineKernel, a launch parameter": of(
      (x) => core.defineKernel({ ...kernel, launchParams: { cpu: { x } }, launch: { gpu: kernel.launch.cpu } }),
      "u32" as const,
    ),
    "defineKernel, a launch rule": of((cpu) => core.defineKernel({ ...kernel, launch: { cpu } }), kernel.launch.cpu),
    constantsOf: of((kernel) => core.constantsOf(kernel, device), incrementKernel as never),
    scratchFits: of((kernel) => core.scratchFits(kernel, { groups: 1 } as never, device), incrementKernel as never),
    paramsHeader: of((kernel) => core.paramsHeader(kernel), incrementKernel as never),
    defineLibrary: of(core.defineLibrary, "name", import.meta.url),
    defineOp: of((declaration) => core.defineOp(declaration), op),
    ...fields("defineOp", op, (declaration) => core.defineOp(declaration)),
    "defineOp, an input": of((x) => core.defineOp({ ...op, inputs: { x } }), op.inputs.x),
    ...fields("defineOp, an input,", op.inputs.x, (x) => core.defineOp({ ...op, inputs: { x } })),
    ...fields("defineOp, an output,", op.outputs.out, (out) => core.defineOp({ ...op, outputs: { out } })),
    ...fields("defineOp, a parameter,", op.params.n, (n) => core.defineOp({ ...op, params: { n } })),
    inputTensors: of(core.inputTensors, increment.op),
    opParams: of(core.opParams, increment.op),
    shapeText: of(core.shapeText, "N" as core.ShapeRule),
    paramText: of(core.paramText, { kind: "number", integer: true, min: 1 }),
    quantizedDims: of(
      (context, offered, input) => core.quantizedDims(context as never, offered, input as undefined),
      quantizedContext() as object,
      [4] as readonly number[],
      "q" as unknown,
    ),
    broadcastShape: of(core.broadcastShape, [2, 1], [3] as readonly number[]),
    broadcastAxes: of(core.broadcastAxes, [2, 1], [3] as readonly number[]),
    gatheredInputs: of(core.gatheredInputs, () => ({}) as core.Gathered),
    gatheredProducts: of(core.gatheredProducts, gatheredContext() as core.OpContext, 4),
    normParams: of(core.normParams, 2, 4, { eps: 1e-6, weightOffset: 0, rounding: "once" }),
    normRowsOnCuda: of(core.normRowsOnCuda, { rows: 2, dim: 4 }),
    normRowsOnGpu: of(core.normRowsOnGpu, { rows: 2, dim: 4 }),
    gatheredSlots: of(core.gatheredSlots, { pairs: 8, m: 1, matrices: 4, ordered: true }, 2),
    refuseBits: of(core.refuseBits, "op", 4 as unknown, [4] as readonly unknown[]),
    unsupported: of(core.unsupported, "op", "f16", "remedy"),
    opSignatures: of((ops) => core.opSignatures(ops), [increment.op] as never),
    "an op": of(
      (encoder, inputs, options) => increment(encoder, inputs, options),
      device.encoder(),
      { x: tensor },
      { groups: 1 },
    ),
    ...fields("an op's inputs", { x: tensor, out: device.tensor("u32", [4]) }, (inputs) =>
      increment(device.encoder(), inputs),
    ),
    ...fields("an op's options", { groups: 1, microseconds: 0 }, (options) =>
      increment(device.encoder(), { x: tensor }, options),
    ),
    readSafetensors: of(core.readSafetensors, file),
    readStoredSafetensors: of(core.readStoredSafetensors, file),
    createSafetensors: of(
      (path, entries, metadata) => core.createSafetensors(path, entries, metadata).abort(),
      join(folder, "created"),
      [{ name: "a", dtype: "f32", shape: [1] }] as core.SafetensorsEntry[],
      { format: "pt" },
    ),
    "createSafetensors, an entry": of((entry) => core.createSafetensors(join(folder, "created"), [entry]).abort(), {
      name: "a",
      dtype: "f32",
      shape: [1],
    } as core.SafetensorsEntry),
    "writer.write": of(
      (name, data) => {
        const open = writer();
        try {
          open.write(name, data);
        } finally {
          open.abort();
        }
      },
      "a",
      new Uint8Array(1) as never,
    ),
    writeSafetensors: of(
      (path, tensors, metadata) => core.writeSafetensors(path, tensors, metadata),
      join(folder, "written"),
      [["a", { dtype: "u8", shape: [1], data: new Uint8Array(1) }]] as Parameters<typeof core.writeSafetensors>[1],
      { format: "pt" },
    ),
    "writeSafetensors, a tensor": of((tensor) => core.writeSafetensors(join(folder, "written"), [["a", tensor]]), {
      dtype: "u8",
      shape: [1],
      data: new Uint8Array(1),
    } as core.HostTensor),
    explainTruncatedFiles: of(core.explainTruncatedFiles),
    sameBytes: of(core.sameBytes, tensor, tensor),
    elementCount: of(core.elementCount, "op", [2], "shape"),
    tensorBytes: of(core.tensorBytes, "f32", [2], "op"),
    tileStride: of(core.tileStride, "f32", 16),
  };

  it("calls every public function", () => {
    const called = new Set(Object.keys(calls).map((name) => name.split(/[ ,]/)[0]));
    const names = Object.entries(core).flatMap(([name, value]) => (typeof value === "function" ? [name] : []));
    const untested = [
      "Checkpoint",
      "Device",
      "MlxtsError",
      "ArgumentRangeError",
      "ArgumentTypeError",
      "cpuLevels",
      "printAsJson",
    ];
    expect(names.filter((name) => !called.has(name) && !untested.includes(name))).toEqual([]);
    const objects = {
      device,
      buffer,
      tensor,
      arena,
      encoder: device.encoder(),
      recording,
      checkpoint,
      writer: writer(),
    };
    const methods = Object.entries(objects).flatMap(([name, object]) => {
      const prototype = Object.getPrototypeOf(object) as object;
      return Object.entries(Object.getOwnPropertyDescriptors(prototype))
        .filter(([method, { value }]) => method !== "constructor" && typeof value === "function" && value.length > 0)
        .map(([method]) => `${name}.${method}`);
    });
    // Functions that only core itself calls.
    const internal =
      /^(device\.refused|device\.allocate|buffer\.(range|copy|checkRange|place)|tensor\.(raw|assertComputed)|arena\.(poison|newBlock|adopt)|encoder\.(record|enter|planned|orderAfterConflicts|assertRecording|during|write|writePlan|share|end|finishAs|allocate)|checkpoint\.(entry|bufferOf|bind|convert|countCopy|take\w+)|writer\.(attempt|put))$/;
    expect(methods.filter((name) => !called.has(name) && !internal.test(name))).toEqual([]);
    objects.writer.abort();
  });

  it.each(Object.entries(calls))("%s", async (name, { with: right, call }) => {
    const wrong: string[] = [];
    const attempt = async (what: string, args: readonly unknown[]) => {
      try {
        await call(...(args as never[]));
      } catch (error) {
        if (!typed(error))
          wrong.push(`${name}, ${what}: ${(error as Error)?.stack?.split("\n").slice(0, 3).join(" ")}`);
      }
    };
    await call(...(right as never[]));
    for (let position = 0; position < right.length; position++)
      for (const [kind, make] of Object.entries(GARBAGE))
        await attempt(
          `argument ${position} as ${kind}`,
          right.map((value, i) => (i === position ? make() : value)),
        );
    await attempt("without arguments", []);
    expect(wrong).toEqual([]);
  });
});
