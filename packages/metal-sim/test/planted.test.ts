import { readFileSync } from "node:fs";
import { withClang } from "@mlxts/test-kit/clang";
import { expect, it } from "vitest";
import { type Binding, compile, type Kernel, type Report, run } from "../src/index.ts";
import { example } from "./example.ts";

const path = example("planted.metal");

/** Kernel → the finding that a comment of the file expects, and its line. */
function expectations(): Map<string, { kind: string; line: number }> {
  const found = new Map<string, { kind: string; line: number }>();
  let kernel = "";
  for (const [i, text] of readFileSync(path, "utf8").split("\n").entries()) {
    kernel = /^kernel void (\w+)/.exec(text)?.[1] ?? kernel;
    const kind = /\/\/ expect (\S+)/.exec(text)?.[1];
    if (kind) found.set(kernel, { kind, line: i + 1 });
  }
  return found;
}

/** 64 threads over buffers of 64 elements. */
async function reportsOf(build: "fast" | "check", name: string): Promise<Report[]> {
  const program = compile({ path }, build);
  const kernel = program.kernels.find((k) => k.name === name) as Kernel;
  const buffers: Record<string, Uint32Array<ArrayBuffer>> = {};
  const bindings: Record<string, Binding> = {};
  for (const { name, kind } of kernel.arguments)
    if (kind === "buffer") {
      const count = kernel.name === "partial_matrix" ? 128 : 64;
      buffers[name] = name === "shift" ? new Uint32Array([2]) : new Uint32Array(count);
      bindings[name] = { buffer: name };
    }
  const hasMemory = kernel.arguments.some(({ kind }) => kind === "threadgroup");
  const { reports } = await run(program, {
    buffers,
    dispatches: [
      {
        kernel: kernel.name,
        threadgroups: [kernel.name === "two_threadgroups" ? 2 : 1],
        threadsPerThreadgroup: [64],
        bindings,
        ...(hasMemory && { threadgroupBytes: { 0: 256 } }),
      },
    ],
  });
  return reports;
}

/** Findings that a planted fault brings along. */
const ALSO: Record<string, string[]> = { missing_barrier: ["uninitialized"] };

withClang("planted faults", () => {
  const expected = expectations();

  it("each kernel has one", () => {
    expect(compile({ path }, "check").kernels.map(({ name }) => name)).toEqual([...expected.keys()]);
  });

  for (const [name, want] of expected)
    it(`${name} is found in check mode`, async () => {
      const reports = await reportsOf("check", name);
      const at = reports.filter(({ kind }) => kind === want.kind).flatMap((r) => [r.place, r.otherPlace]);
      expect(at).toContainEqual({ file: path, line: want.line });
      const others = reports.map(({ kind }) => kind).filter((kind) => kind !== want.kind);
      expect(others.filter((kind) => !ALSO[name]?.includes(kind))).toEqual([]);
    });

  // Divergence and limits do not need instrumentation, and guard zones catch the rest by a fault.
  for (const name of [
    "past_the_end",
    "past_threadgroup_memory",
    "before_the_start",
    "some_arrive",
    "early_return",
    "two_barriers",
    "half_a_simdgroup",
    "wrong_divisor",
    "too_much_memory",
  ])
    it(`${name} is found in fast mode`, async () => {
      const want = expected.get(name);
      const reports = await reportsOf("fast", name);
      expect(reports).toHaveLength(1);
      expect(reports[0]?.kind).toBe(want?.kind);
      // Memory beside a buffer that is still mapped is looked at after the dispatch, when the line is gone.
      if (reports[0]?.place) expect([reports[0].place.line, reports[0].otherPlace?.line]).toContain(want?.line);
    });

  it("a race is told in one sentence, to the letter", async () => {
    const reports = await reportsOf("check", "wrong_flags");
    expect(reports).toEqual([
      {
        kind: "race",
        message:
          `wrong_flags: race: 4-byte read of \`tile\` at byte 252 at ${path}:16 by thread 0 of threadgroup (0, 0, 0), ` +
          `after a write at ${path}:14 by thread 63 of threadgroup (0, 0, 0) with no barrier between`,
        place: { file: path, line: 16 },
        who: { threadgroup: [0, 0, 0], thread: 0, simdgroup: 0 },
        count: 64,
        argument: "tile",
        byteOffset: 252,
        bytes: 4,
        isWrite: false,
        otherPlace: { file: path, line: 14 },
        other: { threadgroup: [0, 0, 0], thread: 63, simdgroup: 1 },
      },
    ]);
  });
});
