// Command lists given to the Metal device as words, without the encoder's checks and barriers.
import { expect, it } from "vitest";
import { type NativeDevice, type NativeMemory, native } from "../src/native.ts";
import { caught } from "./helpers.ts";
import { describeSimulated, set } from "./simulator.ts";

const open = () =>
  native().openDevice({ kind: "metal", threads: 0, level: "", order: "forward", capture: "", driver: "" }, () => {});
const source = (body: string, parameters = "") =>
  "#include <metal_stdlib>\nusing namespace metal;\n" +
  `kernel void none(device uint* x [[buffer(0)]]${parameters}) { ${body} }\n`;

interface Launch {
  pipeline?: number;
  threads?: [number, number, number];
  scratch?: number;
  fault?: boolean;
  params?: number;
}
const BARRIER = [2];
/** A dispatch of one threadgroup, without guards; bindings of the list's first memory, each with its offset and bytes. */
function dispatch(
  { pipeline = 0, threads = [1, 1, 1], scratch = 0, fault = false, params = 0 }: Launch,
  bindings: number[][],
): number[] {
  const [written, early] = [0, 0];
  const head = [
    1,
    pipeline,
    0,
    1,
    1,
    1,
    ...threads,
    scratch,
    0,
    Number(fault),
    written,
    early,
    bindings.length,
    params,
  ];
  const words = (x: number) => [x % 2 ** 32, Math.floor(x / 2 ** 32)];
  return [
    ...head,
    ...bindings.flatMap(([offset = 0, bytes = 0]) => [0, ...words(offset), ...words(bytes)]),
    ...Array.from({ length: params }, (_, i) => i + 1),
  ];
}
const fill = (offset: number, bytes: number, byte = 255) => [
  3,
  0,
  byte,
  0,
  ...[offset, bytes].flatMap((x) => [x % 2 ** 32, Math.floor(x / 2 ** 32)]),
];

function run(device: NativeDevice, memory: NativeMemory, words: number[]) {
  native().waitFor(device, native().run(device, Uint32Array.from(words), words.length, [memory], false));
  return native().takeEnded(device).at(-1);
}
function read(memory: NativeMemory, offset: number, words = 1): number[] {
  const into = new Uint32Array(words);
  native().readMemory(memory, offset, into);
  return [...into];
}

describeSimulated("command lists that Metal would end the process for", () => {
  it.each([
    ["`pipeline` must be known to this device, got 9", dispatch({ pipeline: 9 }, [[0, 4]])],
    ["too many threads in a threadgroup", dispatch({ threads: [1025, 1, 1] }, [[0, 4]])],
    ["too many threads in a threadgroup", dispatch({ threads: [2 ** 31, 2 ** 31, 4] }, [[0, 4]])],
    // 2^32 + 1 threads.
    ["too many threads in a threadgroup", dispatch({ threads: [641, 6700417, 1] }, [[0, 4]])],
    ["too many threads in a threadgroup", dispatch({ threads: [0, 1, 1] }, [[0, 4]])],
    ["a binding must start at a multiple of 4 bytes", dispatch({}, [[2, 4]])],
    ["too many buffers", dispatch({}, Array(31).fill([0, 4]))],
    ["too many buffers", dispatch({ fault: true }, Array(30).fill([0, 4]))],
    ["too many parameters", dispatch({ params: 1025 }, [[0, 4]])],
    ["too much threadgroup memory", dispatch({ scratch: 32769 }, [[0, 4]])],
    ["a fill must cover whole words", fill(2, 4)],
    ["a fill must cover whole words", fill(0, 3)],
  ])("are refused: %s", (rule, words) => {
    const device = open();
    const library = native().openLibrary(device, source("x[0] = 1;"), "none");
    native().pipeline(device, library, "none");
    const memory = native().allocate(device, 64);
    expect(caught(() => run(device, memory, words))).toMatchObject({
      code: "InvalidArgument",
      message: `submit: ${rule}`,
    });
    native().closeDevice(device);
  });

  it("and handles of pipelines that are not there, and buffers past the limit", () => {
    const device = open();
    for (const pipeline of [0, 3])
      expect(caught(() => native().pipelineThreads(device, pipeline)).message).toBe(
        `submit: \`pipeline\` must be known to this device, got ${pipeline}`,
      );
    expect(caught(() => native().allocate(device, 2 ** 34 + 4)).code).toBe("BufferAllocation");
    native().closeDevice(device);
  });
});

describeSimulated("command lists at Metal's limits", () => {
  it.each<[what: string, launch: Launch, bindings: number, parameters: string, body: string]>([
    ["31 buffers, parameters among them", {}, 30, "", "x[0] = 7;"],
    ["a fault record behind 29 and the parameters", { fault: true }, 29, "", "x[0] = 7;"],
    ["4096 bytes of parameters", { params: 1024 }, 1, ", constant uint* p [[buffer(1)]]", "x[0] = p[1023] - 1017;"],
    [
      "32768 bytes of threadgroup memory",
      { scratch: 32768 },
      1,
      ", threadgroup uint* memory [[threadgroup(0)]]",
      "memory[8191] = 7; x[0] = memory[8191];",
    ],
    [
      "1024 threads",
      { threads: [4, 16, 16] },
      1,
      ", uint i [[thread_index_in_threadgroup]]",
      "if (i == 1023) x[0] = 7;",
    ],
  ])("run: %s", (_, launch, bindings, parameters, body) => {
    const device = open();
    native().pipeline(device, native().openLibrary(device, source(body, parameters), "none"), "none");
    const memory = native().allocate(device, 64);
    expect(run(device, memory, dispatch(launch, Array(bindings).fill([0, 64])))).not.toHaveProperty("code");
    expect(read(memory, 0)).toEqual([7]);
    native().closeDevice(device);
  });

  it("run with nothing but barriers", () => {
    const device = open();
    const memory = native().allocate(device, 64);
    expect(run(device, memory, [...BARRIER, ...BARRIER])).not.toHaveProperty("code");
    native().closeDevice(device);
  });

  it("reach past 4 GB", () => {
    const device = open();
    native().pipeline(device, native().openLibrary(device, source("x[0] += 7;"), "none"), "none");
    const far = 2 ** 32;
    const memory = native().allocate(device, far + 64);
    const words = [...dispatch({}, [[far + 16, 4]]), ...BARRIER, ...fill(far + 32, 8)];
    expect(run(device, memory, words)).not.toHaveProperty("code");
    expect(read(memory, far + 12, 8)).toEqual([0, 7, 0, 0, 0, 2 ** 32 - 1, 2 ** 32 - 1, 0]);
    expect([...read(memory, 12, 8), ...read(memory, 0)]).toEqual(Array(9).fill(0));
    // More than 4 GB of zeros.
    run(device, memory, fill(0, far + 40, 0));
    expect(read(memory, far + 12, 8)).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
    native().closeDevice(device);
  });
});

describeSimulated("commands of the Metal device", () => {
  it.each(["forward", "reverse", "random:1", "random:2", "random:3"])(
    "run in order, fills among dispatches of one kernel: %s",
    (schedule) => {
      set({ schedule });
      const device = open();
      native().pipeline(device, native().openLibrary(device, source("x[0] = x[0] * 2 + 1;"), "none"), "none");
      const memory = native().allocate(device, 64);
      const twice = dispatch({}, [[16, 16]]);
      const list = [twice, fill(16, 4, 1), twice, fill(20, 4, 2), twice, twice];
      const words = list.flatMap((command) => [...command, ...BARRIER]);
      for (let i = 0; i < 3; i++) native().run(device, Uint32Array.from(words), words.length, [memory], i === 1);
      run(device, memory, words);
      expect(read(memory, 12, 4)).toEqual([0, 0x01010101 * 8 + 7, 0x02020202, 0]);
      native().closeDevice(device);
    },
  );

  it("fail when one of them cannot be encoded, though later ones can", () => {
    const device = open();
    native().pipeline(device, native().openLibrary(device, source("x[0] += 7;"), "none"), "none");
    const memory = native().allocate(device, 64);
    set({ fault: "no-blit" });
    const refused = { code: "CommandBuffer", cause: "outOfMemory" };
    for (const words of [fill(0, 4), [...fill(0, 4), ...BARRIER, ...dispatch({}, [[0, 4]])]])
      expect(run(device, memory, words)).toMatchObject(refused);
    expect(read(memory, 0)).toEqual([0]);
    native().closeDevice(device);
  });

  it("have one pipeline for each kernel of each library", () => {
    const device = open();
    const pipelines = ["x[0] += 7;", "x[0] += 100;"].map((body) => {
      const two = `${source(body)}kernel void other(device uint* x [[buffer(0)]]) { x[0] += 1000; }\n`;
      const library = native().openLibrary(device, two, "same");
      const ids = ["none", "other"].map((symbol) => native().pipeline(device, library, symbol));
      expect(["none", "other"].map((symbol) => native().pipeline(device, library, symbol))).toEqual(ids);
      return ids;
    });
    expect(pipelines).toEqual([
      [0, 1],
      [2, 3],
    ]);
    const memory = native().allocate(device, 4);
    run(device, memory, dispatch({ pipeline: 0 }, [[0, 4]]));
    run(device, memory, dispatch({ pipeline: 2 }, [[0, 4]]));
    run(device, memory, dispatch({ pipeline: 3 }, [[0, 4]]));
    expect(read(memory, 0)).toEqual([1107]);
    native().closeDevice(device);
  });
});
