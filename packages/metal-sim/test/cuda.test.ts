import { describe, expect, it } from "vitest";
import { cudaEntry } from "../src/cuda_entries.ts";
import { MetalSimError } from "../src/index.ts";
import { translateForCuda } from "../src/translate.ts";

/** Text as the preprocessor leaves it. */
const translate = (text: string) =>
  translateForCuda(`#pragma metal_sim_include metal_stdlib\n# 1 "a.metal" 1\n${text}`);

const SCALE = `
using namespace metal;
constant constexpr uint kStep = 2;
template <typename T>
kernel void scale(device const T* x [[buffer(0)]], device T* out [[buffer(3)]], constant Params& p [[buffer(1)]],
                  threadgroup uchar* memory [[threadgroup(0)]], uint3 at [[thread_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]]) {
#pragma clang loop unroll(full)
  for (uint i = 0; i < 4; ++i) out[at.x * kStep] = x[i] * 0.5 + T(p.more);
}
template [[host_name("scale_f32")]] [[kernel]] decltype(scale<float>) scale<float>;
`;

describe("a CUDA translation", () => {
  it("is C++ in namespace msl, without instances, address spaces and attributes", () => {
    const { text, kernels } = translate(SCALE);
    expect(kernels.map(({ name }) => name)).toEqual(["scale_f32"]);
    expect(text).toMatch(/^#include <cuda_metal.h>\nnamespace msl \{\n/);
    expect(text).toContain("static const constexpr uint kStep = 2;");
    expect(text).toContain("#pragma unroll\n");
    expect(text).toContain("x[i] * 0.5f");
    expect(text).not.toMatch(/device|threadgroup|kernel void|host_name|\[\[|clang/);
  });

  it("has an entry with a parameter for each index", () => {
    const [kernel] = translate(SCALE).kernels;
    const entry = cudaEntry(kernel as NonNullable<typeof kernel>, 256);
    expect(entry).toContain(
      "MLXTS_CUDA_ENTRY(256) mlxts_scale_f32(const float* b0, MLXTS_CUDA_PARAM Params b1, const void* b2, float* b3) {",
    );
    expect(entry).toContain(
      "scale<float>(b0, b3, b1, (uchar*)machine::threadgroup_memory(), " +
        "entries::Position{entries::thread_position_in_grid()}, " +
        "entries::Index{entries::thread_index_in_simdgroup()}, entries::Index{32u});",
    );
  });

  it("takes the number of threads from the kernel where that says it", () => {
    const text = "[[kernel, max_total_threads_per_threadgroup(64)]] void k(device float* x [[buffer(0)]]) {}";
    const [kernel] = translate(text).kernels;
    expect(cudaEntry(kernel as NonNullable<typeof kernel>)).toContain("MLXTS_CUDA_ENTRY(64) mlxts_k(float* b0)");
  });

  it.each([
    [
      "kernel void k(device float* x [[buffer(0)]]) {\n  threadgroup float tile[4];\n}",
      "a.metal:2: `threadgroup` variables have no translation: take a [[threadgroup(n)]] argument",
    ],
    [
      "kernel void k(threadgroup float* a [[threadgroup(0)]], threadgroup float* b [[threadgroup(1)]]) {}",
      "a.metal:1: `[[threadgroup(1)]]` is a second threadgroup argument, which CUDA does not have",
    ],
    ['kernel void k(device float* x [[buffer(0)]]) { asm(""); }', "a.metal:1: `asm` cannot be run here"],
  ])("refuses %j", (text, message) => {
    let error: unknown;
    try {
      translate(text);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(MetalSimError);
    expect(error).toMatchObject({ code: "Untranslatable", message });
  });
});
