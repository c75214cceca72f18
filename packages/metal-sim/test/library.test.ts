import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineKernel, defineLibrary, paramsHeader } from "@mlxts/core";
import { withClang } from "@mlxts/test-kit/clang";
import { afterAll, expect, it } from "vitest";
import { compile, lint, type MetalSimError, run } from "../src/index.ts";

const HEAD = "#include <metal_stdlib>\nusing namespace metal;\n";

/** The value of each expression, of x = a[0], y = a[1], z = a[2] in f32. */
async function values(expressions: readonly string[], a: readonly number[]): Promise<Float32Array> {
  const text = `${HEAD}kernel void k(device const float* a [[buffer(0)]], device float* out [[buffer(1)]]) {
  const float x = a[0], y = a[1], z = a[2];
  ${expressions.map((expression, i) => `{ ${expression.includes("return") ? `auto f = 0.0f; ${expression.replace("return", "f =")}; out[${i}] = float(f);` : `out[${i}] = float(${expression});`} }`).join("\n  ")}
}`;
  const out = new Float32Array(expressions.length);
  const { reports } = await run(compile({ path: "library.metal", text }, "check"), {
    buffers: { a: Float32Array.from(a), out },
    dispatches: [
      {
        kernel: "k",
        threadgroups: [1],
        threadsPerThreadgroup: [1],
        bindings: { a: { buffer: "a" }, out: { buffer: "out" } },
      },
    ],
  });
  expect(reports).toEqual([]);
  return out;
}

const fract = (v: number) => v - Math.floor(v);
const clamp01 = (v: number) => Math.min(1, Math.max(0, v));

/** Expressions, and what they are of x, y, z. */
const FLOATS: [string, (x: number, y: number, z: number) => number][] = [
  ["asinh(x)", Math.asinh],
  ["acosh(x + 2)", (x) => Math.acosh(x + 2)],
  ["atanh(x / 10)", (x) => Math.atanh(x / 10)],
  ["sinpi(x)", (x) => Math.sin(Math.PI * x)],
  ["cospi(x)", (x) => Math.cos(Math.PI * x)],
  ["tanpi(x / 5)", (x) => Math.tan((Math.PI * x) / 5)],
  ["divide(x, y)", (x, y) => x / y],
  ["min3(x, y, z)", Math.min],
  ["fmin3(x, y, z)", Math.min],
  ["max3(x, y, z)", Math.max],
  ["median3(x, y, z)", (...all) => all.sort((p, q) => p - q)[1] as number],
  ["fmedian3(z, y, x)", (...all) => all.sort((p, q) => p - q)[1] as number],
  ["smoothstep(-1.0f, 4.0f, x)", (x) => ((t) => t * t * (3 - 2 * t))(clamp01((x + 1) / 5))],
  ["float c; float s = sincos(x, c); return s + 10 * c", (x) => Math.sin(x) + 10 * Math.cos(x)],
  ["float whole; float part = modf(x, whole); return part + 100 * whole", (x) => (x % 1) + 100 * Math.trunc(x)],
  [
    "int e; float m = frexp(x, e); return m * 100 + e",
    (x) => ((e) => (x / 2 ** e) * 100 + e)(Math.floor(Math.log2(Math.abs(x))) + 1),
  ],
  ["ldexp(x, 5)", (x) => x * 32],
  ["ilogb(x)", (x) => Math.floor(Math.log2(Math.abs(x)))],
  ["isordered(x, y)", () => 1],
  ["isunordered(x, as_type<float>(0x7fc00000u))", () => 1],
  ["fast::normalize(float3(x, y, z)).y", (x, y, z) => y / Math.hypot(x, y, z)],
  ["distance(float2(x, y), float2(z, x))", (x, y, z) => Math.hypot(x - z, y - x)],
  ["distance_squared(float2(x, y), float2(z, x))", (x, y, z) => (x - z) ** 2 + (y - x) ** 2],
  ["cross(float3(x, y, z), float3(1, 2, 3)).x", (_, y, z) => 3 * y - 2 * z],
  ["cross(float3(x, y, z), float3(1, 2, 3)).y", (x, _, z) => z - 3 * x],
  ["cross(float3(x, y, z), float3(1, 2, 3)).z", (x, y) => 2 * x - y],
  ["reflect(float2(x, y), float2(0, 1)).y", (_, y) => -y],
  ["refract(float2(0.6f, -0.8f), float2(0, 1), 0.5f).x", () => 0.3],
  ["refract(float2(0.6f, -0.8f), float2(0, 1), 0.5f).y", () => -Math.sqrt(1 - 0.09)],
  ["refract(float2(0.6f, -0.8f), float2(0, 1), 5.0f).y", () => 0],
  ["faceforward(float2(x, y), float2(0, 1), float2(0, -1)).y", (_, y) => y],
  ["faceforward(float2(x, y), float2(0, 1), float2(0, 1)).y", (_, y) => -y],
  ["smoothstep(float2(0), float2(4), float2(x, y)).x", (x) => ((t) => t * t * (3 - 2 * t))(clamp01(x / 4))],
  ["nextafter(x, 100.0f) - x", (x) => 2 ** (Math.floor(Math.log2(Math.abs(x))) - 23)],
  ["fract(x)", fract],
];

const INTEGERS: [string, number][] = [
  ["hadd(7, 8)", 7],
  ["rhadd(7, 8)", 8],
  ["hadd(0xffffffffu, 0xffffffffu) == 0xffffffffu", 1],
  ["hadd(-7, -8)", -8],
  ["addsat(0x7fffffff, 5) == 0x7fffffff", 1],
  ["subsat(-0x7fffffff, 5) == int(0x80000000)", 1],
  ["madsat(100000, 100000, 1) == 0x7fffffff", 1],
  ["madsat(-100000, 100000, 1) == int(0x80000000)", 1],
  ["madsat(3u, 4u, 5u)", 17],
  ["mul24(0x01000003, 5)", 15],
  ["mul24(-3, 5)", -15],
  ["mad24(-3, 5, 1)", -14],
  ["mad24(0xff000003u, 5u, 1u)", 16],
  ["min3(3, -1, 2)", -1],
  ["max3(3u, 1u, 2u)", 3],
  ["median3(3, -1, 2)", 2],
];

withClang("Metal's library", () => {
  it.each([[[1.5, 2.25, -0.75]], [[3.75, -1.5, 0.5]]])("has its functions of floats, at %j", async (a) => {
    const got = await values(
      FLOATS.map(([expression]) => expression),
      a,
    );
    for (const [i, [expression, of]] of FLOATS.entries()) {
      const want = of(...(a as [number, number, number]));
      expect(Math.abs((got[i] as number) - want), `${expression} is ${got[i]}, not ${want}`).toBeLessThanOrEqual(
        2e-6 * Math.max(1, Math.abs(want)),
      );
    }
  });

  it("has its functions of integers", async () => {
    const got = await values(
      INTEGERS.map(([expression]) => expression),
      [0, 0, 0],
    );
    expect(INTEGERS.map(([expression], i) => [expression, got[i]])).toEqual(INTEGERS);
  });

  it("has them for half and bfloat too, and lint knows them", () => {
    const uses = (T: string) => `{ ${T} x = ${T}(a[0]), y = ${T}(a[1]), c, w; int e;
    vec<${T}, 3> v = vec<${T}, 3>(x, y, x);
    a[2] += float(sincos(x, c)) + float(modf(x, w)) + float(frexp(x, e)) + float(smoothstep(x, y, x)) + float(min3(x, y, x));
    a[3] += float(normalize(v).x) + float(cross(v, v).y) + float(distance(v, v)) + float(asinh(x)) + float(ldexp(x, e)); }`;
    const text = `${HEAD}kernel void k(device float* a [[buffer(0)]]) {\n${["float", "half", "bfloat"].map(uses).join("\n")}\n}`;
    expect(compile({ path: "types.metal", text }).kernels).toHaveLength(1);
    expect(lint({ path: "types.metal", text })).toEqual([]);
  });

  it("takes arrays of the library in every address space", () => {
    const text = `${HEAD}struct Pair { array<float, 2> both; };
kernel void k(device float* out [[buffer(0)]], constant array<float, 4>& four [[buffer(1)]],
              device array<float, 4>* rows [[buffer(2)]], threadgroup array<int, 4>* tile [[threadgroup(0)]],
              uint i [[thread_position_in_grid]]) {
  array<float, 4> sums = {1, 2, 3, 4};
  for (uint j = 0; j < sums.size(); ++j) sums[j] += four[j] + rows[i][j];
  const array<float, 4> copy = sums;
  Pair p;
  p.both[0] = copy[1] + copy.front() + copy.back() + *copy.data();
  tile[0][i & 3] = int(i);
  rows[i][1] = p.both[0];
  rows[i] = copy;
  out[i] = copy.empty() ? 0 : copy[2] + tile[0][0];
}`;
    expect(lint({ path: "array.metal", text })).toEqual([]);
    expect(compile({ path: "array.metal", text }).kernels).toHaveLength(1);
  });

  const message = (text: string) => {
    try {
      compile({ path: "wrong.metal", text: HEAD + text });
    } catch (error) {
      return (error as MetalSimError).message;
    }
    return "";
  };

  it("says of a function that it has and the simulator has not", () => {
    const text = "kernel void k(device float* a [[buffer(0)]]) { a[0] = float(pack_float_to_unorm4x8(float4(a[0]))); }";
    expect(message(text)).toMatch(
      /wrong\.metal:3:\d+: error: use of undeclared identifier 'pack_float_to_unorm4x8' \(`pack_float_to_unorm4x8` of Metal's library is not simulated\)/,
    );
    expect(lint({ path: "wrong.metal", text: HEAD + text }).map((finding) => finding.message)).toEqual([
      "`pack_float_to_unorm4x8` of Metal's library is not simulated",
    ]);
  });

  it("says of a function of C that Metal has not", () => {
    for (const call of ["erf(a[0])", "metal::erf(a[0])", "fast::erf(a[0])"])
      expect(message(`kernel void k(device float* a [[buffer(0)]]) { a[0] = ${call}; }`)).toContain(
        "(`erf` is not in Metal's library)",
      );
  });

  it("leaves a kernel's own function of such a name alone", () => {
    const text = `float erf(float x) { return x; }
kernel void k(device float* a [[buffer(0)]]) { a[0] = erf(a[0]); }`;
    expect(message(text)).toBe("");
  });
});

withClang("headers", () => {
  const folder = mkdtempSync(join(tmpdir(), "metal-sim-headers-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const core = fileURLToPath(new URL("../../core/native", import.meta.url));
  const readme = readFileSync(fileURLToPath(new URL("../../core/README.md", import.meta.url)), "utf8");
  const [, text = ""] = /```cpp\n\/\/ native\/scale\.metal\n(.*?)```/s.exec(readme) ?? [];
  const path = join(folder, "scale.metal");
  const kernel = defineKernel({
    library: defineLibrary("example", import.meta.url),
    name: "scale",
    variants: ["f32"],
    buffers: { x: "read", out: "write" },
    params: { dim: "u32", factor: "f32" },
    launch: { cpu: (_: object) => ({ threadgroups: [1, 1, 1] }), gpu: (_: object) => ({ threadgroups: [1, 1, 1] }) },
  });
  writeFileSync(path, text);
  writeFileSync(join(folder, "scale.params.h"), paramsHeader(kernel));

  it("of other packages are found in the folders that are named: the kernel of core's README runs", async () => {
    const source = { path, includeFolders: [core] };
    expect(lint(source)).toEqual([]);
    const out = new Float32Array(8);
    const { reports } = await run(compile(source, "check"), {
      buffers: { x: Float32Array.from({ length: 8 }, (_, i) => i), out },
      dispatches: [
        {
          kernel: "scale_f32",
          threadgroups: [2],
          threadsPerThreadgroup: [32],
          bindings: {
            x: { buffer: "x" },
            out: { buffer: "out" },
            p: { bytes: new Uint32Array([4, 0x40400000]) },
          },
        },
      ],
    });
    expect(reports).toEqual([]);
    expect([...out]).toEqual([0, 3, 6, 9, 12, 15, 18, 21]);
  });

  it("may have a part for check mode alone", () => {
    const text = `${HEAD}kernel void k(device float* a [[buffer(0)]]) {
#if defined(__METAL_SIM__) && defined(__METAL_SIM_CHECK__)
  a.nothing = 1;
#endif
}`;
    expect(compile({ path: "macros.metal", text }).kernels).toHaveLength(1);
    expect(compile({ path: "macros.metal", text }, "coverage").kernels).toHaveLength(1);
    expect(() => compile({ path: "macros.metal", text }, "check")).toThrow("macros.metal:5");
  });

  it("that are not found are asked for", () => {
    expect(() => compile({ path })).toThrow(
      "name the header's folder with -I (includeFolders); mlxts' own lie in node_modules/@mlxts/core/native",
    );
  });
});
