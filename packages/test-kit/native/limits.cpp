// What a core can do at best: independent multiply-adds, and reads in several streams.
#include "cpu_kernel.h"
#include "peak_fma.params.h"
#include "peak_read.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

constexpr int kChains = 12;

// out[group]: multiply-adds of one iteration, and a value that depends on all of them.
void peak_fma(const Launch& l) {
  const auto& p = l.args<PeakFmaParams>();
  float* out = l.buffer<float>(PEAK_FMA_OUT);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    vf32 sums[kChains];
    const vf32 factor = splat(p.factor);
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = splat(float(i));
    for (uint32_t iteration = 0; iteration < p.iterations; ++iteration) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) sums[i] = fma(sums[i], factor, factor);
    }
    vf32 total = {};
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) total += sums[i];
    out[2 * group] = kChains * kLanes;
    out[2 * group + 1] = reduce_add(total);
  }
}

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

MLXTS_KERNEL(peak_fma_f32, peak_fma)
MLXTS_KERNEL(peak_read_f32, peak_read)
