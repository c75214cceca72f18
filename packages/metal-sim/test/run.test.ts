import { createHash } from "node:crypto";
import { withClang } from "@mlxts/test-kit/clang";
import { expect, it } from "vitest";
import { type Build, compile, type Job, MetalSimError, type Program, run, type Schedule } from "../src/index.ts";
import { fill, pack, unpack } from "../src/values.ts";
import { example } from "./example.ts";

const SCHEDULES: Schedule[] = ["forward", "reverse", { random: 1 }, { random: 2 }];
const source = (body: string) => ({
  path: "inline.metal",
  text: `#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {\n${body}\n}\n`,
});

function job(program: Program, threads: number, schedule: Schedule = "forward", timeoutMs = 20_000) {
  const out = new Float32Array(threads);
  const { name } = program.kernels[0] as { name: string };
  const dispatch = {
    kernel: name,
    threadgroups: [1],
    threadsPerThreadgroup: [threads],
    bindings: { out: { buffer: "out" } },
    schedule,
  };
  return { out, job: { buffers: { out }, dispatches: [dispatch], timeoutMs } satisfies Job };
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof MetalSimError) return `${error.code}: ${error.message}`;
    throw error;
  }
  return "";
}

withClang("rms_norm, an example", () => {
  const [rows, dim] = [5, 516];
  const x = fill(`random:${rows * dim}:1`, "f16");
  const weight = fill(`random:${dim}:2`, "f16");

  async function norm(build: Build, schedule: Schedule, workers: number) {
    const program = compile({ path: example("rms_norm.metal") }, build);
    const out = fill(`nan:${rows * dim}`, "f16");
    const p = pack([
      { type: "u32", value: dim },
      { type: "f32", value: 1e-5 },
    ]);
    const bindings = {
      x: { buffer: "x" },
      weight: { buffer: "weight" },
      out: { buffer: "out" },
      p: { bytes: p },
    };
    const spec = {
      kernel: "rms_norm_f16",
      threadgroups: [rows],
      threadsPerThreadgroup: [96],
      threadgroupBytes: { partial: 16 },
    };
    const { reports } = await run(program, {
      buffers: { x, weight, out },
      dispatches: [{ ...spec, bindings, schedule }],
      workers,
    });
    expect(reports).toEqual([]);
    return { out, hash: createHash("sha256").update(out).digest("hex") };
  }

  it("is right, and the same to the bit under every schedule, worker count and build", async () => {
    const { out, hash } = await norm("fast", "forward", 1);
    for (const schedule of SCHEDULES) expect((await norm("fast", schedule, 2)).hash).toBe(hash);
    expect((await norm("check", "forward", 1)).hash).toBe(hash);
    expect((await norm("check", { random: 3 }, 1)).hash).toBe(hash);
    expect((await norm("coverage", "reverse", 1)).hash).toBe(hash);
    const [xs, ws, got] = [x, weight, out].map((bytes) => unpack(bytes, "f16", rows * dim)) as [
      number[],
      number[],
      number[],
    ];
    for (let row = 0; row < rows; row++) {
      const values = xs.slice(row * dim, (row + 1) * dim);
      const inverse = 1 / Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / dim + 1e-5);
      for (const [i, v] of values.entries()) {
        const want = v * inverse * (ws[i] as number);
        expect(Math.abs((got[row * dim + i] as number) - want)).toBeLessThan(2 ** -10 * Math.abs(want) + 1e-6);
      }
    }
  });
});

withClang("the runner", () => {
  it("shows a race as bits that differ between schedules", async () => {
    const program = compile(source("threadgroup float t[64];\nt[i] = i;\nout[i] = t[63 - i];"));
    const hashes = new Set<string>();
    for (const schedule of SCHEDULES) {
      const { out, job: work } = job(program, 64, schedule);
      await run(program, work);
      hashes.add(createHash("sha256").update(out).digest("hex"));
    }
    expect(hashes.size).toBeGreaterThan(1);
  });

  it("poisons threadgroup memory anew for each threadgroup", async () => {
    const program = compile(source("threadgroup float t[64];\nout[i] = t[i];\nt[i] = 1.0f;"));
    const { out, job: work } = job(program, 64);
    const [dispatch] = work.dispatches;
    await run(program, { ...work, dispatches: [{ ...dispatch, threadgroups: [3] } as (typeof work.dispatches)[0]] });
    expect([...out].every(Number.isNaN)).toBe(true);
  });

  it("keeps a wild pointer's fault to the dispatch and names its line", async () => {
    const program = compile(
      source("device float* wild = (device float*)(ulong)(0x123456789000ul + i);\n*wild = 1.0f;"),
    );
    const { job: work } = job(program, 32);
    const { reports } = await run(program, { ...work, dispatches: [...work.dispatches, ...work.dispatches] });
    expect(reports).toHaveLength(2);
    expect(reports[0]).toMatchObject({
      kind: "fault",
      place: { file: "inline.metal", line: 5 },
      message:
        "k: an access to memory that no argument holds, or through a misaligned pointer, at inline.metal:5 by thread 0 of threadgroup (0, 0, 0)",
    });
  });

  it("reports a buffer that is not bound", async () => {
    const program = compile(source("out[i] = 1.0f;"));
    const { job: work } = job(program, 32);
    const [dispatch] = work.dispatches;
    const { reports } = await run(program, {
      buffers: {},
      dispatches: [{ ...dispatch, bindings: {} } as (typeof work.dispatches)[0]],
    });
    expect(reports.map(({ kind, place }) => [kind, place?.line])).toEqual([["fault", 4]]);
  });

  it("reports a thread's variables that do not fit its stack", async () => {
    const program = compile(
      source(
        "float big[100000];\nfor (int j = 0; j < 100000; j++) big[j] = out[i] + j;\nout[i] = big[int(out[i]) + 7];",
      ),
    );
    const { reports } = await run(program, job(program, 32).job);
    expect(reports.map(({ kind }) => kind)).toEqual(["stack"]);
  });

  it("ends a loop of barriers at the time limit", async () => {
    const program = compile(source("for (;;) threadgroup_barrier(mem_flags::mem_none);"));
    const { reports } = await run(program, job(program, 32, "forward", 200).job);
    expect(reports.map(({ kind, place }) => [kind, place?.line])).toEqual([["timeout", 4]]);
  });

  it.each([
    ["with memory", "while (out[i] == 0.0f) out[i] = -out[i];"],
    ["without memory", "uint n = 1; while (n != 0) n = n * 3; out[i] = n;"],
    ["with nothing", "for (;;) {}"],
    ["with a function of the C library", "float x = 1; while (x != 7) x = sin(x); out[i] = x;"],
    ["in one thread of many", "while (i == 5 && out[i] == 0.0f) out[i] = -out[i];"],
  ])("ends a loop without barriers at the time limit, at its line: %s", async (_, loop) => {
    for (const build of ["fast", "check", "coverage"] as const) {
      const program = compile(source(loop), build);
      const { reports } = await run(program, job(program, 32, "forward", 200).job);
      expect(
        reports.map(({ kind, place }) => [kind, place?.line]),
        build,
      ).toEqual([["timeout", 4]]);
    }
  });

  it("goes on with other dispatches in a process where one has been ended", async () => {
    const program = compile({
      path: "two.metal",
      text: `#include <metal_stdlib>
using namespace metal;
kernel void endless(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { while (out[i] == 0.0f) out[i] = -out[i]; }
kernel void fill(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = i; }
`,
    });
    const out = new Float32Array(64);
    const dispatch = { threadgroups: [2], threadsPerThreadgroup: [32], bindings: { out: { buffer: "out" } } };
    const { dispatches } = await run(program, {
      buffers: { out },
      dispatches: [
        { kernel: "endless", ...dispatch },
        { kernel: "fill", ...dispatch },
      ],
      workers: 2,
      timeoutMs: 200,
    });
    expect(dispatches.map(({ reports }) => reports[0]?.kind)).toEqual(["timeout", undefined]);
    expect([...out.subarray(60)]).toEqual([60, 61, 62, 63]);
  });

  it("refuses dispatches that Metal would refuse", async () => {
    const program = compile(source("out[i] = 1.0f;"));
    const { job: work } = job(program, 32);
    const [dispatch] = work.dispatches as [(typeof work.dispatches)[0]];
    const messages = async (changes: object) => {
      const { reports } = await run(program, { ...work, dispatches: [{ ...dispatch, ...changes }] });
      return reports.map(({ kind, message }) => `${kind}: ${message}`);
    };
    expect(await messages({ threadsPerThreadgroup: [1025] })).toEqual([
      "invalid-dispatch: k: a threadgroup must have at most 1024 threads, got 1025",
    ]);
    expect(await messages({ threadgroups: [0] })).toEqual([
      "invalid-dispatch: k: every dimension of the grid and of the threadgroup must be at least 1",
    ]);
    expect(await messages({ threadgroupBytes: { 0: 20000, 1: 20000 } })).toEqual([
      "invalid-dispatch: k: threadgroup memory must be at most 32768 bytes",
    ]);
    expect(await messages({ bindings: { out: { buffer: "out", byteOffset: 2 } } })).toEqual([
      "invalid-dispatch: k: `out` must be aligned to 4 bytes, the alignment of float",
    ]);
  });

  it("refuses wrong arguments", async () => {
    const program = compile(source("out[i] = 1.0f;"));
    const { job: work } = job(program, 32);
    const [dispatch] = work.dispatches as [(typeof work.dispatches)[0]];
    const refused = (changes: object) => codeOf(run(program, { ...work, dispatches: [{ ...dispatch, ...changes }] }));
    expect(await refused({ kernel: "j" })).toBe("InvalidArgument: no kernel is called `j`; there is k");
    expect(await refused({ bindings: { x: { buffer: "out" } } })).toBe(
      "InvalidArgument: `k` has no buffer argument `x`",
    );
    expect(await refused({ bindings: { out: { buffer: "y" } } })).toBe(
      "InvalidArgument: `out` is bound to `y`, which is no buffer of the job",
    );
    expect(await refused({ threads: [3] })).toBe(
      "InvalidArgument: a dispatch must have either threadgroups or threads",
    );
    for (const [name, max] of [
      ["workers", 1024],
      ["timeoutMs", 2_000_000_000],
    ] as const)
      for (const value of [0, -5, 1.5, Number.NaN, max + 1, "1"])
        expect(await codeOf(run(program, { ...work, [name]: value }))).toBe(
          `InvalidArgument: ${name} must be an integer from 1 to ${max}, got ${value}`,
        );
  });

  it("gives the compiler's log with the .metal file's lines", () => {
    expect(() => compile(source("out[i] = nothing;"))).toThrow(
      "inline.metal:4:10: error: use of undeclared identifier 'nothing'",
    );
    expect(() => compile({ path: "absent.metal" })).toThrow("absent.metal: ENOENT");
  });

  it("in check mode sees aliases as one buffer", async () => {
    const program = compile(
      {
        path: "alias.metal",
        text: "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device const float* a [[buffer(0)]], device float* b [[buffer(1)]], uint i [[thread_position_in_grid]]) {\n  b[i] = a[i + 1];\n}\n",
      },
      "check",
    );
    const x = new Float32Array(65);
    const bindings = { a: { buffer: "x" }, b: { buffer: "x" } };
    const { reports } = await run(program, {
      buffers: { x },
      dispatches: [{ kernel: "k", threadgroups: [1], threadsPerThreadgroup: [64], bindings }],
    });
    expect(reports.map(({ kind, place }) => [kind, place?.line])).toEqual([["race", 4]]);
  });
});
