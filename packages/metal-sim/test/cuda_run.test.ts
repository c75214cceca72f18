// CUDA translations on the engine: the instructions of core's cuda_machine.h, and faults in texts that use them.
import { withClang } from "@mlxts/test-kit/clang";
import { firstRing } from "@mlxts/test-kit/rings";
import { beforeAll, expect, it } from "vitest";
import { type Bytes, compile, type Report, run } from "../src/index.ts";

const BUILDS = firstRing ? (["check"] as const) : (["fast", "check"] as const);

const TEXT = `#pragma metal_sim_translation cuda
#line 1 "cuda.metal"
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct Params {
  uint count;
  float scale;
};

// out = scale · x, each simdgroup's numbers turned round, by way of threadgroup memory.
kernel void staged(device const float* x [[buffer(0)]], device float* out [[buffer(3)]],
                   constant Params& p [[buffer(1)]], threadgroup float* tile [[threadgroup(0)]],
                   uint3 group [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {
  const uint from = group.x * 64;
  if (i < 16) machine::copy_start<16>(tile + 4 * i, x + from + 4 * i, from + 4 * i + 4 <= p.count ? 16 : 0);
  machine::copies_end();
  machine::copies_wait<0>(); // wait
  threadgroup_barrier(mem_flags::mem_threadgroup); // barrier
  out[from + i] = simd_shuffle_xor(tile[i], 31) * p.scale;
}

// out [16, 8] = a [16, 16] · b [16, 8] of 16-bit floats in rows of 24, one simdgroup.
kernel void product(device const ushort* a [[buffer(0)]], device const ushort* b [[buffer(1)]],
                    device float* out [[buffer(2)]], threadgroup ushort* tile [[threadgroup(0)]],
                    uint lane [[thread_index_in_simdgroup]]) {
  for (uint i = lane; i < 256; i += 32) tile[i / 16 * 24 + i % 16] = a[i];
  for (uint i = lane; i < 128; i += 32) tile[384 + i / 8 * 24 + i % 8] = b[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  uint a0, a1, a2, a3, b0, b1;
  machine::load_matrices(a0, a1, a2, a3, tile + (lane % 16) * 24 + lane / 16 * 8);
  machine::load_matrices_transposed(b0, b1, tile + 384 + (lane % 16) * 24);
  float d[4] = {0, 0, 0, 0};
  machine::mma_bf16_k16(d, a0, a1, a2, a3, b0, b1);
  for (uint e = 0; e < 4; ++e) out[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
}

// out [16, 8] = 5 + a [16, 32] · bᵀ [8, 32] of bytes, b with signs, one simdgroup.
kernel void bytes(device const uchar* a [[buffer(0)]], device const uchar* b [[buffer(1)]],
                  device int* out [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  const uint g = lane / 4, j = lane % 4;
  device const uint* left = (device const uint*)a;
  device const uint* right = (device const uint*)b;
  int d[4] = {5, 5, 5, 5};
  machine::mma_bytes_k32(d, left[g * 8 + j], left[(g + 8) * 8 + j], left[g * 8 + j + 4], left[(g + 8) * 8 + j + 4],
                         right[g * 8 + j], right[g * 8 + j + 4]);
  for (uint e = 0; e < 4; ++e) out[(g + e / 2 * 8) * 8 + 2 * j + e % 2] = d[e];
}

// out [64, 32] = a [64, 64] · bᵀ [32, 64] of bf16 by a warpgroup: b in rows of 128 bytes, their pieces swizzled.
kernel void warpgroup(device const ushort* a [[buffer(0)]], device const ushort* b [[buffer(1)]],
                      device float* out [[buffer(2)]], threadgroup uchar* tile [[threadgroup(0)]],
                      uint i [[thread_index_in_threadgroup]]) {
  for (uint at = i; at < 256; at += 128)
    machine::copy_start<16>(tile + at / 8 * 128 + (at % 8 ^ at / 8 % 8) * 16, b + at * 8);
  machine::copies_end();
  machine::copies_wait<0>();
  machine::warpgroup_operands_written(); // fence
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint row = i / 32 * 16 + i % 32 / 4, column = i % 4 * 2;
  uint left[4][4];
  for (uint k = 0; k < 4; ++k)
    for (uint n = 0; n < 4; ++n)
      left[k][n] = *(device const uint*)(a + (row + n % 2 * 8) * 64 + 16 * k + n / 2 * 8 + column);
  float d[4][4];
  machine::warpgroup_begin();
  for (uint k = 0; k < 4; ++k)
    machine::warpgroup_bf16_k16(d, left[k], machine::warpgroup_operand(tile) + 2 * k, k > 0);
  machine::warpgroup_end();
  machine::warpgroup_wait<0>(); // products
  for (uint n = 0; n < 4; ++n)
    for (uint e = 0; e < 4; ++e) out[(row + e / 2 * 8) * 32 + n * 8 + column + e % 2] = d[n][e];
}

// out [64, 8] = a [64, 64] · bᵀ [8, 64] of bf16 by a warpgroup: both in rows of 128 bytes, their pieces swizzled.
kernel void warpgroup_both(device const ushort* a [[buffer(0)]], device const ushort* b [[buffer(1)]],
                           device float* out [[buffer(2)]], threadgroup uchar* tile [[threadgroup(0)]],
                           uint i [[thread_index_in_threadgroup]]) {
  for (uint at = i; at < 576; at += 128)
    machine::copy_start<16>(tile + at / 8 * 128 + (at % 8 ^ at / 8 % 8) * 16,
                            at < 512 ? a + at * 8 : b + (at - 512) * 8);
  machine::copies_end();
  machine::copies_wait<0>();
  machine::warpgroup_operands_written();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const ulong left = machine::warpgroup_operand(tile), right = machine::warpgroup_operand(tile + 8192);
  float d[4];
  machine::warpgroup_begin();
  for (uint k = 0; k < 4; ++k) machine::warpgroup_bf16_k16(d, left + 2 * k, right + 2 * k, k > 0);
  machine::warpgroup_end();
  machine::warpgroup_wait<0>();
  const uint row = i / 32 * 16 + i % 32 / 4, column = i % 4 * 2;
  for (uint e = 0; e < 4; ++e) out[(row + e / 2 * 8) * 8 + column + e % 2] = d[e];
}

// out [64, 128] = 1 + a [64, 16] · b [16, 128] of bf16 by a warpgroup: b as it lies, in two halves of 128 bytes a row,
// where simdgroup 0 stores it in matrices, every other four transposed before and by the store.
kernel void warpgroup_rows(device const ushort* a [[buffer(0)]], device const ushort* b [[buffer(1)]],
                           device float* out [[buffer(2)]], threadgroup uchar* tile [[threadgroup(0)]],
                           uint i [[thread_index_in_threadgroup]]) {
  const uint lane = i % 32, row = i / 32 * 16 + lane / 4, column = i % 4 * 2;
  for (uint t = 0; i < 32 && t < 8; ++t) {
    uint m[4];
    for (uint n = 0; n < 4; ++n) {
      m[n] = *(device const uint*)(b + (n / 2 * 8 + lane / 4) * 128 + t * 16 + n % 2 * 8 + column);
      if (t % 2 == 1) m[n] = machine::transposed16(m[n]);
    }
    const uint to = lane / 16 * 8 + lane % 8, piece = 2 * (t % 4) + lane / 8 % 2;
    threadgroup uchar* at = tile + t / 4 * 2048 + to * 128 + (piece ^ to % 8) * 16;
    if (t % 2 == 1)
      machine::store_matrices_transposed(at, m);
    else
      machine::store_matrices(at, m);
  }
  machine::warpgroup_operands_written();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint left[4];
  for (uint n = 0; n < 4; ++n) left[n] = *(device const uint*)(a + (row + n % 2 * 8) * 16 + n / 2 * 8 + column);
  float d[16][4];
  for (uint n = 0; n < 16; ++n)
    for (uint e = 0; e < 4; ++e) d[n][e] = 1;
  machine::warpgroup_begin();
  machine::warpgroup_bf16_k16_rows(d, left, machine::warpgroup_rows(tile, 2048));
  machine::warpgroup_end();
  machine::warpgroup_wait<0>();
  for (uint n = 0; n < 16; ++n)
    for (uint e = 0; e < 4; ++e) out[(row + e / 2 * 8) * 128 + n * 8 + column + e % 2] = d[n][e];
}

// out = a · b + a, 8 × 8 in f32, b and the second a not as they were loaded.
kernel void matrices(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                     device float* out [[buffer(2)]]) {
  simdgroup_float8x8 left, right, sum;
  simdgroup_load(left, a);
  simdgroup_load(right, b, 8, ulong2(0), true);
  right.thread_elements() *= 1.0f;
  simdgroup_multiply_accumulate(sum, left, right, left);
  simdgroup_store(sum, out);
}

kernel void words(device uint* out [[buffer(0)]], device atomic_uint* total [[buffer(1)]],
                  uint lane [[thread_index_in_simdgroup]]) {
  device uint* o = out + lane * 8;
  o[0] = simd_sum(lane) + simd_max(lane) * 1000 + simd_min(lane + 1) * 1000000;
  o[1] = simd_prefix_exclusive_sum(lane) + simd_prefix_inclusive_sum(1u) * 1000;
  o[2] = simd_shuffle_up(lane, 1) * 100 + simd_shuffle_down(lane, 1);
  o[3] = uint(simd_any(lane == 7)) + uint(simd_all(lane < 31)) * 2 + uint(simd_all(lane < 32)) * 4;
  o[4] = as_type<uint>(float(half(1.0h) / half(3.0h) + half(lane))) ^ as_type<ushort>(bfloat(1.0f / 3.0f));
  o[5] = machine::bytes_of(0x33221100u, 0x77665544u, 0x7520);
  o[6] = as_type<uint>(fma(float4(1.5f), float4(2.0f), float4(lane)).w) + ctz(lane | 32) + clz(1u << lane);
  o[7] = atomic_fetch_add_explicit(total, lane, memory_order_relaxed) < 1000 ? uint(popcount(lane)) : 0;
}
`;

interface Setting {
  kernel: string;
  buffers: Record<string, Bytes>;
  params?: Bytes;
  threads?: number;
  threadgroups?: number;
  memory?: number;
}

/** Compiles one kernel of a text. */
const compiled = (text: string, build: "fast" | "check", kernel: string) =>
  compile({ path: "cuda.metal", text: `${text}\n#pragma metal_sim_only ${kernel}\n` }, build);

async function runs(text: string, build: "fast" | "check", setting: Setting): Promise<Report[]> {
  const { kernel, buffers, params, threads = 32, threadgroups = 1, memory } = setting;
  const bindings = Object.fromEntries(Object.keys(buffers).map((name) => [name, { buffer: name }]));
  const { reports } = await run(compiled(text, build, kernel), {
    buffers,
    dispatches: [
      {
        kernel,
        threadgroups: [threadgroups],
        threadsPerThreadgroup: [threads],
        bindings: { ...bindings, ...(params && { p: { bytes: params } }) },
        ...(memory !== undefined && { threadgroupBytes: { 0: memory } }),
      },
    ],
  });
  return reports;
}

const bf16 = (values: readonly number[]) =>
  Uint16Array.from(values, (value) => (new Uint32Array(new Float32Array([value]).buffer)[0] as number) >>> 16);
const small = (count: number, seed: number) => Array.from({ length: count }, (_, i) => ((i * 7 + seed) % 17) / 4 - 2);
const at = (values: ArrayLike<number>, i: number) => values[i] as number;

withClang("CUDA translations", () => {
  const staged = () => ({
    kernel: "staged",
    buffers: { x: Float32Array.from({ length: 128 }, (_, i) => i), out: new Float32Array(128) },
    params: new Uint32Array([124, 0x40000000]),
    threads: 64,
    threadgroups: 2,
    memory: 256,
  });

  // The first one also compiles what all programs share, which no test's limit is to count.
  beforeAll(() => {
    for (const build of BUILDS) compiled(TEXT, build, "staged");
  }, 600_000);

  it.each(BUILDS)("copy, wait and shuffle (%s)", async (build) => {
    const setting = staged();
    expect(await runs(TEXT, build, setting)).toEqual([]);
    const want = Array.from({ length: 128 }, (_, i) => ((i ^ 31) < 124 ? 2 * (i ^ 31) : 0));
    expect([...setting.buffers.out]).toEqual(want);
  });

  it("without the wait, what was copied is not there", async () => {
    const setting = staged();
    await runs(TEXT.replace(/^.*\/\/ wait$/m, ""), "fast", setting);
    expect(setting.buffers.out.every(Number.isNaN)).toBe(true);
  });

  it("a barrier that is taken out is a race, at its line", async () => {
    const reports = await runs(TEXT.replace(/^.*\/\/ barrier$/m, ""), "check", staged());
    const line = (part: string) => TEXT.split("\n").findIndex((text) => text.includes(part)) - 1;
    expect(reports).toMatchObject([
      {
        kind: "race",
        place: { file: "cuda.metal", line: line("simd_shuffle_xor(tile[i]") },
        otherPlace: { file: "cuda.metal", line: line("// wait") },
      },
    ]);
  });

  it.each(BUILDS)("multiply tiles of 16-bit floats (%s)", async (build) => {
    const [a, b] = [small(256, 1), small(128, 5)];
    const buffers = { a: bf16(a), b: bf16(b), out: new Float32Array(128) };
    expect(await runs(TEXT, build, { kernel: "product", buffers, memory: 1536 })).toEqual([]);
    for (let i = 0; i < 128; i++) {
      let sum = 0;
      for (let k = 0; k < 16; k++) sum += at(a, Math.floor(i / 8) * 16 + k) * at(b, k * 8 + (i % 8));
      expect(at(buffers.out, i)).toBe(sum);
    }
  });

  it.each(BUILDS)("multiply tiles of bytes (%s)", async (build) => {
    const byte = (i: number) => (i * 37 + 11) % 256;
    const [a, b] = [
      Uint8Array.from({ length: 512 }, (_, i) => byte(i)),
      Int8Array.from({ length: 256 }, (_, i) => byte(3 * i)),
    ];
    const buffers = { a, b, out: new Int32Array(128) };
    expect(await runs(TEXT, build, { kernel: "bytes", buffers })).toEqual([]);
    for (let i = 0; i < 128; i++) {
      let sum = 5;
      for (let k = 0; k < 32; k++) sum += at(a, Math.floor(i / 8) * 32 + k) * at(b, (i % 8) * 32 + k);
      expect(at(buffers.out, i)).toBe(sum);
    }
  });

  const warpgroup = (a = small(4096, 1), b = small(2048, 5)) => ({
    kernel: "warpgroup",
    buffers: { a: bf16(a), b: bf16(b), out: new Float32Array(2048) },
    threads: 128,
    memory: 4096,
  });
  it.each(BUILDS)("multiply by warpgroups (%s)", async (build) => {
    const [a, b] = [small(4096, 1), small(2048, 5)];
    const setting = warpgroup(a, b);
    expect(await runs(TEXT, build, setting)).toEqual([]);
    for (let i = 0; i < 2048; i++) {
      let sum = 0;
      for (let k = 0; k < 64; k++) sum += at(a, Math.floor(i / 32) * 64 + k) * at(b, (i % 32) * 64 + k);
      expect(at(setting.buffers.out, i)).toBe(sum);
    }
  });

  it.each(BUILDS)("multiply what both lies in threadgroup memory (%s)", async (build) => {
    const [a, b] = [small(4096, 1), small(512, 5)];
    const buffers = { a: bf16(a), b: bf16(b), out: new Float32Array(512) };
    expect(await runs(TEXT, build, { kernel: "warpgroup_both", buffers, threads: 128, memory: 9216 })).toEqual([]);
    for (let i = 0; i < 512; i++) {
      let sum = 0;
      for (let k = 0; k < 64; k++) sum += at(a, Math.floor(i / 8) * 64 + k) * at(b, (i % 8) * 64 + k);
      expect(at(buffers.out, i)).toBe(sum);
    }
  });

  it.each(BUILDS)("multiply by rows as they lie, which matrices are stored to (%s)", async (build) => {
    const [a, b] = [small(1024, 1), small(2048, 5)];
    const buffers = { a: bf16(a), b: bf16(b), out: new Float32Array(8192) };
    expect(await runs(TEXT, build, { kernel: "warpgroup_rows", buffers, threads: 128, memory: 4096 })).toEqual([]);
    for (let i = 0; i < 8192; i++) {
      let sum = 1;
      for (let k = 0; k < 16; k++) sum += at(a, Math.floor(i / 128) * 16 + k) * at(b, k * 128 + (i % 128));
      expect(at(buffers.out, i)).toBe(sum);
    }
  });

  it.each(["fence", "products"])("without what stands before the %s there are no numbers", async (mark) => {
    const setting = warpgroup();
    await runs(TEXT.replace(new RegExp(`^.*// ${mark}$`, "m"), ""), "fast", setting);
    expect(setting.buffers.out.every(Number.isNaN)).toBe(true);
  });

  it("tell of simdgroups that execute what others of their warpgroup do not", async () => {
    const meeting = "  machine::parts_meet<128>();\n";
    const text = (wait: string) =>
      TEXT.replace(/^.*\/\/ products$/m, `${wait}  machine::warpgroup_wait<0>();\n${meeting}`);
    const waits = (condition: string) =>
      runs(text(`  ${condition} machine::warpgroup_wait<0>();\n`), "check", warpgroup());
    expect(await waits("if (i < 128)")).toEqual([]);
    const [fault, ...others] = await waits("if (i < 32)");
    expect(fault?.kind).toBe("split-warpgroup");
    expect(others.length).toBeLessThan(128);
  });

  it("multiply matrices of f32 without loss, loaded or not", async () => {
    const a = Float32Array.from({ length: 64 }, (_, i) => Math.fround(Math.sin(i) * 3));
    const b = Float32Array.from({ length: 64 }, (_, i) => Math.fround(Math.cos(3 * i)));
    const buffers = { a, b, out: new Float32Array(64) };
    expect(await runs(TEXT, "check", { kernel: "matrices", buffers })).toEqual([]);
    for (let i = 0; i < 64; i++) {
      let sum = at(a, i);
      for (let k = 0; k < 8; k++) sum += at(a, Math.floor(i / 8) * 8 + k) * at(b, (i % 8) * 8 + k);
      expect(Math.abs(at(buffers.out, i) - sum)).toBeLessThan(2e-6);
    }
  });

  it("know MSL's words", async () => {
    const buffers = { out: new Uint32Array(256), total: new Uint32Array(1) };
    expect(await runs(TEXT, "fast", { kernel: "words", buffers })).toEqual([]);
    const own = (lane: number) => [...buffers.out.subarray(lane * 8, lane * 8 + 8)];
    const bits = (value: number) => new Uint32Array(new Float32Array([value]).buffer)[0] as number;
    const third = 0x3eab;
    const half = (value: number) => Math.round(value * 256) / 256;
    expect(own(5)).toEqual([
      496 + 31_000 + 1_000_000,
      10 + 6000,
      406,
      5,
      (bits(half(5.333_251_953_125)) ^ third) >>> 0,
      0x77_55_22_00,
      (bits(8) + 0 + 26) >>> 0,
      2,
    ]);
    expect(own(31)[2]).toBe(3031);
    expect(own(0)[2]).toBe(1);
    expect(buffers.total[0]).toBe(496);
  });
});
