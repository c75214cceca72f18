import { withClang } from "@mlxts/test-kit/clang";
import { beforeAll, expect, it } from "vitest";
import { type Build, type Bytes, compile, type DispatchSpec, type JobResult, type Program, run } from "../src/index.ts";
import { fill, unpack } from "../src/values.ts";
import { example } from "./example.ts";

const path = example("features.metal");
const f = Math.fround;
const half = (values: number[]) => fillWith("f16", values);
const numbers = (bytes: Bytes, type: string) =>
  unpack(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), type, bytes.byteLength);

function fillWith(type: string, values: number[]): Uint8Array<ArrayBuffer> {
  const bytes = fill(`zeros:${values.length}`, type);
  const view = new DataView(bytes.buffer);
  for (const [i, value] of values.entries())
    if (type === "f32") view.setFloat32(4 * i, value, true);
    else view.setUint16(2 * i, BITS[value] as number, true);
  return bytes;
}
/** The halves that the tests use. */
const BITS: Record<number, number> = { 0: 0, 1: 0x3c00, 2: 0x4000, 3: 0x4200, 4: 0x4400, [-1]: 0xbc00, 0.5: 0x3800 };

const close = (got: ArrayLike<number>, want: readonly number[], ulps = 4) => {
  expect(got.length).toBe(want.length);
  for (const [i, value] of want.entries())
    expect(Math.abs((got[i] as number) - value), `element ${i}: ${got[i]} for ${value}`).toBeLessThanOrEqual(
      ulps * 2 ** -23 * Math.max(Math.abs(value), 0.25),
    );
};

for (const build of ["fast", "check", "coverage"] satisfies Build[])
  withClang(`features, ${build} build`, () => {
    let program: Program;
    const executed = new Set<number>();
    const withCode = new Set<number>();
    beforeAll(() => {
      program = compile({ path }, build);
    });

    async function go(buffers: Record<string, Bytes>, spec: Omit<DispatchSpec, "bindings">): Promise<JobResult> {
      const bindings = Object.fromEntries(Object.keys(buffers).map((buffer) => [buffer, { buffer }]));
      const result = await run(program, { buffers, dispatches: [{ ...spec, bindings }] });
      expect(result.reports).toEqual([]);
      for (const { file, line, executed: hit } of result.coverage)
        if (file === path) {
          withCode.add(line);
          if (hit) executed.add(line);
        }
      return result;
    }

    it("lists the kernels and their arguments", () => {
      expect(program.kernels.map(({ name }) => name)).toEqual(
        "scale_f32 scale_bf16_twice scale_f16 math integers vectors simdgroups matrices atomics edges renamed".split(
          " ",
        ),
      );
      expect(program.kernels[0]).toMatchObject({
        maxThreads: 128,
        arguments: [
          { name: "in", kind: "buffer", index: 0, space: "device", readOnly: true, type: "float" },
          { name: "out", kind: "buffer", index: 1, space: "device", readOnly: false, type: "float" },
          { name: "p", kind: "buffer", index: 2, space: "constant", readOnly: true, type: "FeaturesParams" },
          { name: "position", kind: "builtin", attribute: "thread_position_in_grid", type: "uint3" },
          { name: "local", kind: "builtin", attribute: "thread_position_in_threadgroup", type: "ushort3" },
        ],
      });
      expect(program.kernels[2]?.arguments[0]?.type).toBe("half");
    });

    it("templates, threadgroup variables, a shared header", async () => {
      const input = new Float32Array(128).map((_, i) => i);
      const out = new Float32Array(128);
      const p = new Uint8Array(8);
      new DataView(p.buffer).setUint32(0, 120, true);
      new DataView(p.buffer).setFloat32(4, 3, true);
      const spec = { threadgroups: [2], threadsPerThreadgroup: [64] };
      await go({ in: input, out, p }, { kernel: "scale_f32", ...spec });
      const want = Array.from({ length: 128 }, (_, i) =>
        i < 120 ? (Math.floor(i / 64) * 64 + 63 - (i % 64)) * 3 * ([0.5, 1, 2, 4][i & 3] as number) + 4 : 0,
      );
      expect([...out]).toEqual(want);
      const wide = new Uint8Array(256);
      await go({ in: fill("count:128", "bf16"), out: wide, p }, { kernel: "scale_bf16_twice", ...spec });
      // bf16 keeps 8 bits: relative error of half a step.
      for (const [i, value] of numbers(wide, "bf16").entries()) {
        const exact = i < 120 ? (want[i] as number) * 2 - 4 : 0;
        expect(Math.abs(value - exact)).toBeLessThanOrEqual(exact * 2 ** -8);
      }
      await go({ in: fill("count:128", "f16"), out: wide, p }, { kernel: "scale_f16", ...spec });
      expect(numbers(wide, "f16")).toEqual(want);
    });

    it("math", async () => {
      const x = new Float32Array([0.3, -0.7, 1.5, -2.5]);
      const out = new Float32Array(128);
      await go({ x, out }, { kernel: "math", threads: [4], threadsPerThreadgroup: [32] });
      for (const [i, v] of x.entries()) {
        const even = (a: number) => (Math.abs(a % 1) === 0.5 ? 2 * Math.round(a / 2) : Math.round(a));
        const want = [
          Math.exp(v),
          2 ** v,
          Math.log(v + 4),
          Math.log2(v + 4),
          1 / Math.sqrt(v + 4),
          Math.sqrt(v + 4),
          v * v + 1,
          Math.min(Math.max(v, -0.5), 0.5),
          Math.min(v, 0.25) + Math.max(v, 0.75),
          v > 0 ? 2 : 1,
          1 + 2 * v,
          2 * Math.abs(v),
          Math.floor(v) + Math.ceil(v),
          Math.sign(v) * Math.round(Math.abs(v)),
          even(v),
          Math.trunc(v),
          Math.sin(v) + Math.cos(v),
          Math.tanh(v),
          (v + 4) ** 1.5,
          1,
          1,
          Math.sign(v) + v - Math.floor(v),
          [0.300048828125, -0.7001953125, 1.5, -2.5][i] as number,
          [0.30078125, -0.69921875, 1.5, -2.5][i] as number,
          1 / 3,
          -v,
          Math.sign(v) * 2 + Math.min(Math.max(v, 0), 1),
          [0.4501953125, -1.05078125, 2.25, -3.75][i] as number,
          (v % 0.75) + Math.atan2(v, 2),
          3 * v + 19,
          // Denormals are kept.
          v * 2 ** -126,
          131008,
        ];
        close(out.subarray(32 * i, 32 * i + 32), want, 8);
        expect(out[32 * i + 30]).toBe(f(f(v) * 2 ** -126));
      }
    });

    it("integers", async () => {
      const x = new Uint32Array([0, 1, 0x80f0_1234, 0xffff_ffff]);
      const out = new Uint32Array(64);
      await go({ x, out }, { kernel: "integers", threads: [4], threadsPerThreadgroup: [32] });
      for (const [i, v] of x.entries()) {
        const bits = v.toString(2).padStart(32, "0");
        const big = BigInt(v);
        const signed = v | 0;
        const want = [
          [...bits].filter((bit) => bit === "1").length,
          v === 0 ? 32 : Math.clz32(v),
          v === 0 ? 32 : 31 - Math.clz32(v & -v),
          Number((big * 0x8000_0001n) >> 32n),
          Math.abs(signed),
          Number.parseInt([...bits].reverse().join(""), 2),
          (v << 8) | (v >>> 24),
          (v >>> 4) & 0xfff,
          (v & ~0xff00) | 0xff00,
          (v >>> 24) + (v & 0xffff),
          Math.min(v, 1000) + Math.max(signed, -5) + Math.min(Math.max(v, 2), 9),
          Math.min(2 * v, 0xffff_ffff) - (v === 0 ? 1 : 0),
          Number((big * big) >> 32n),
          (v & 255) + ((v << 24) >> 24),
          Math.abs(v - 7),
          (v << 3) | (v >>> 29),
        ].map((n) => n >>> 0);
        expect([...out.subarray(16 * i, 16 * i + 16)]).toEqual(want);
      }
    });

    it("vectors", async () => {
      const x = new Float32Array([1, 2, 3, 4, -5, 0.5, -7, -8]);
      const out = new Float32Array(8);
      const packed = new Float32Array(6);
      const bytes = new Uint8Array([1, 2, 3, 255, 16, 17, 0, 9]);
      const halves = new Uint8Array(16);
      const bfloats = new Uint8Array(8);
      await go(
        { x, out, packed, bytes, halves, bfloats },
        { kernel: "vectors", threads: [2], threadsPerThreadgroup: [32] },
      );
      expect([...out]).toEqual([10, -3, 8, 7, -8, 9, 0, -18]);
      expect([...packed]).toEqual([3, 3, 0, -9, -9, 1]);
      expect(numbers(halves, "f16")).toEqual([0.5, 1, 1.5, 7.5, 0, 0.5, 0, 4.5]);
      // Each bfloat operation rounds: 1 + 2^-9 is a tie, to even.
      expect(numbers(bfloats, "bf16")).toEqual([3, 1, -9, 1]);
    });

    it("simdgroup functions, full and partial", async () => {
      const out = new Uint32Array(64 * 16);
      const sums = new Float32Array(64);
      await go({ out, sums }, { kernel: "simdgroups", threadgroups: [1], threadsPerThreadgroup: [64] });
      const total = (from: number, to: number) => ((to - from) * (from + to - 1)) / 2 + 0;
      for (let i = 0; i < 64; i++) {
        const [base, lane] = [i & ~31, i & 31];
        const xor = Array.from({ length: 32 }, (_, k) => base + k).reduce((a, b) => a ^ b);
        const and = Array.from({ length: 32 }, (_, k) => (base + k) | 64).reduce((a, b) => a & b);
        expect([...out.subarray(16 * i, 16 * i + 16)]).toEqual([
          total(base, base + 32),
          (base + 31) * 100 + base,
          base + 3,
          base + 31 - lane,
          base + (lane ^ 5),
          lane < 2 ? i : i - 2,
          lane < 2 ? i + 30 : i,
          total(base, i + 1),
          total(base, i),
          1 + 4,
          0x49249249,
          base + (lane === 0 ? 1 : 0),
          (0xffffffff ^ xor ^ and) >>> 0,
          base + ((lane + 1) & 31),
          i < 40 ? 1 : 0,
          i < 32 ? 32 : i < 40 ? 8 : 0,
        ]);
        const reciprocals = Array.from({ length: 32 }, (_, k) => 1 / (base + k + 1)).reduce((a, b) => a + b);
        close([sums[i] as number], [reciprocals + (i < 32 ? 1 : 2 ** 32)]);
      }
    });

    it("simdgroup matrices", async () => {
      const at = (i: number) => ([1, 2, -1, 0, 3] as const)[i % 5] as number;
      const a = half(Array.from({ length: 128 }, (_, i) => at(i)));
      const b = half(Array.from({ length: 64 }, (_, i) => at(i * 3)));
      const c = new Float32Array(64).map((_, i) => i / 4);
      const out = new Float32Array(192);
      await go(
        { a, b, c, out },
        { kernel: "matrices", threadgroups: [1], threadsPerThreadgroup: [32], threadgroupBytes: { tile: 128 } },
      );
      for (let row = 0; row < 8; row++)
        for (let column = 0; column < 8; column++) {
          let sum = (row * 8 + column) / 4;
          for (let k = 0; k < 8; k++) sum += at(row * 16 + 8 + k) * at((column * 8 + k) * 3);
          expect(out[row * 8 + column]).toBe(sum);
          expect(out[128 + column * 8 + row]).toBe(sum);
        }
      // A lane holds two neighbors of a row: every second element is 0.5, the others are each lane once.
      const narrow = [...out.subarray(64, 128)];
      expect(narrow.filter((_, i) => i % 2 === 1)).toEqual(Array(32).fill(0.5));
      expect(narrow.filter((_, i) => i % 2 === 0).sort((x, y) => x - y)).toEqual([...Array(32).keys()]);
    });

    it("atomics", async () => {
      const total = new Uint32Array(2);
      const least = new Int32Array(1);
      const out = new Uint32Array(128);
      await go(
        { total, least, out },
        { kernel: "atomics", threadgroups: [2], threadsPerThreadgroup: [64], threadgroupBytes: { shared: 4 } },
      );
      expect([...total]).toEqual([(128 * 127) / 2, 256]);
      expect(least[0]).toBe(-127);
      expect([...out]).toEqual(Array(128).fill((64 * 63) / 2));
    });

    it("grids of threads have smaller threadgroups at the edges", async () => {
      const out = new Uint32Array(7 * 5 * 8);
      await go({ out }, { kernel: "edges", threads: [7, 5], threadsPerThreadgroup: [4, 2] });
      for (let y = 0; y < 5; y++)
        for (let x = 0; x < 7; x++) {
          const size = [x < 4 ? 4 : 3, y < 4 ? 2 : 1] as const;
          const at = 8 * (7 * y + x);
          expect([...out.subarray(at, at + 6)]).toEqual([
            size[0] * 100 + size[1],
            402,
            203,
            Math.floor(x / 4) * 100 + Math.floor(y / 2),
            (x % 4) + (y % 2) * size[0],
            x * 100 + y,
          ]);
        }
    });

    it("other forms of the same things", async () => {
      const a = new Float32Array(5);
      const b = new Float32Array(35).map((_, i) => i);
      const scaled = new Uint32Array([3, 0x4000_0000]);
      const count = new Uint32Array(1);
      await go(
        { a, b, scaled, count },
        { kernel: "renamed", threadgroups: [1], threadsPerThreadgroup: [32], threadgroupBytes: { shared: 128 } },
      );
      expect([...a]).toEqual([2 * (496 + 96) + 4, 1, 2, 1, 2]);
      expect(count[0]).toBe(0xffff_ffff);
    });

    if (build === "coverage")
      it("executes every line", () => {
        expect(withCode.size).toBeGreaterThan(120);
        expect([...withCode].filter((line) => !executed.has(line))).toEqual([]);
      });
  });
