// What a core can do at best: independent products with sums, and reads in several streams.
#include <type_traits>

#include "amx_tiles.h"
#include "cpu_kernel.h"
#include "matrix_dot.h"
#include "peak_multiply.params.h"
#include "peak_read.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

// Enough to hide the latency of a product. With 16, one would not find room in the 16 registers of AVX2, and what is
// stored and loaded in each iteration would be what is measured.
constexpr int kChains = 12;

// out[group]: operations of one iteration, and a value that depends on all of them. `step` adds a product to a sum.
template <typename V, typename Step>
void multiply(const Launch& l, int operationsPerLane, Step step) {
  const auto& p = l.args<PeakMultiplyParams>();
  float* out = l.buffer<float>(PEAK_MULTIPLY_OUT);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    using Lane = std::remove_reference_t<decltype(V{}[0])>;
    V sums[kChains];
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = V{} + Lane(i);  // different, or they were one
    for (uint32_t iteration = 0; iteration < p.iterations; ++iteration) {
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) sums[i] = step(sums[i]);
    }
    V total = {};
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) total += sums[i];
    float sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += float(total[lane]);
    out[2 * group] = float(kChains * kLanes * operationsPerLane);
    out[2 * group + 1] = sum;
  }
}

void multiply_f32(const Launch& l) {
  const vf32 factor = splat(l.args<PeakMultiplyParams>().factor);
  multiply<vf32>(l, 2, [&](vf32 sum) { return fma(sum, factor, factor); });
}

void multiply_bf16(const Launch& l) {
  const vu32 a = narrow_bf16x2(splat(l.args<PeakMultiplyParams>().factor), splat(0.5f));
  multiply<vf32>(l, 4, [&](vf32 sum) { return dot_bf16x2(sum, a, a); });
}

void multiply_int8(const Launch& l) {
  // New to the compiler in each step: products that are always the same would be made only once.
  vu32 a = vu32{} + uint32_t(l.args<PeakMultiplyParams>().factor * 3);
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  // Pairs of bytes, added in 16 bits: kernels widen the sums of many.
  typedef int16_t Sums __attribute__((vector_size(32)));
  multiply<Sums>(l, 8, [a](Sums sum) mutable {
    a = in_register(a);
    const __m256i bytes = reinterpret_cast<__m256i>(a);
    return sum + reinterpret_cast<Sums>(_mm256_maddubs_epi16(bytes, bytes));
  });
#else
  multiply<vi32>(l, 8, [a](vi32 sum) mutable {
    a = in_register(a);
    return dot_int8x4(sum, a, a);
  });
#endif
}

#if defined(__AMX_TILE__)
// The same of whole tiles: each of four sums meets two of four operands, as in a kernel without loads.
template <typename Step>
void multiply_tiles(const Launch& l, int operationsPerSum, Step step) {
  const auto& p = l.args<PeakMultiplyParams>();
  float* out = l.buffer<float>(PEAK_MULTIPLY_OUT);
  const AmxTiles tiles;
  alignas(64) uint8_t zeros[AmxTiles::kRows * AmxTiles::kRowBytes] = {};
  _tile_loadd(4, zeros, AmxTiles::kRowBytes);
  _tile_loadd(5, zeros, AmxTiles::kRowBytes);
  _tile_loadd(6, zeros, AmxTiles::kRowBytes);
  _tile_loadd(7, zeros, AmxTiles::kRowBytes);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t iteration = 0; iteration < p.iterations; ++iteration) step();
    alignas(64) float sums[AmxTiles::kRows * AmxTiles::kRowBytes / sizeof(float)];
    _tile_stored(3, sums, AmxTiles::kRowBytes);
    out[2 * group] = float(4 * AmxTiles::kRows * 16 * operationsPerSum);
    out[2 * group + 1] = sums[0];
  }
}

void multiply_bf16_tiles(const Launch& l) {
  multiply_tiles(l, 2 * 32, [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  });
}

void multiply_int8_tiles(const Launch& l) {
  multiply_tiles(l, 2 * 64, [] {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  });
}
#endif

void peak_read(const Launch& l) {
  const auto& p = l.args<PeakReadParams>();
  float* out = l.buffer<float>(PEAK_READ_OUT);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const float* x = l.buffer<const float>(PEAK_READ_X) + group * p.perGroup;
    const size_t quarter = p.perGroup / 4;
    vf32 sums[4] = {};
    for (uint32_t repeat = 0; repeat < p.repeats; ++repeat)
      for (size_t i = 0; i + kLanes <= quarter; i += kLanes) {
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s) sums[s] += load(x + s * quarter + i);
      }
    out[2 * group] = 0;
    out[2 * group + 1] = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

}  // namespace

MLXTS_KERNEL(peak_multiply_f32, multiply_f32)
MLXTS_KERNEL(peak_multiply_bf16, multiply_bf16)
MLXTS_KERNEL(peak_multiply_int8, multiply_int8)
#if defined(__AMX_TILE__)
MLXTS_KERNEL(peak_multiply_bf16_tiles, multiply_bf16_tiles)
MLXTS_KERNEL(peak_multiply_int8_tiles, multiply_int8_tiles)
#endif
MLXTS_KERNEL(peak_read_f32, peak_read)
