// One threadgroup: some rows, a head to a lane; where channels have their own gates, one row, a channel to a lane.
#include "cpu_kernel.h"
#include "delta_gates.h"
#include "delta_gates.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void betas(float* beta, const T* b, size_t heads, float scale) {
  const auto scaled = [&](vf32 x) { return beta_of(x, scale); };
  for_lanes(
      heads, [&](size_t i) { store(beta + i, scaled(load(b + i))); },
      [&](size_t i, int n) { store_partial(beta + i, scaled(load_partial(b + i, n)), n); });
}

template <typename T>
void gates_of_heads(float* g, const T* a, const float* a_log, const float* dt_bias, size_t heads, float lower_bound) {
  for_lanes(
      heads, [&](size_t i) { store(g + i, gate_of(load(a + i) + load(dt_bias + i), load(a_log + i), lower_bound)); },
      [&](size_t i, int n) {
        const vf32 x = load_partial(a + i, n) + load_partial(dt_bias + i, n);
        store_partial(g + i, gate_of(x, load_partial(a_log + i, n), lower_bound), n);
      });
}

// The gates of one head's channels.
template <typename T>
void gates_of_channels(float* g, const T* a, float a_log, const float* dt_bias, size_t channels, float lower_bound) {
  const vf32 log_rate = splat(a_log);
  for_lanes(
      channels, [&](size_t i) { store(g + i, gate_of(load(a + i) + load(dt_bias + i), log_rate, lower_bound)); },
      [&](size_t i, int n) {
        const vf32 x = load_partial(a + i, n) + load_partial(dt_bias + i, n);
        store_partial(g + i, gate_of(x, log_rate, lower_bound), n);
      });
}

template <typename T>
void delta_gates(const Launch& l) {
  const auto& p = l.args<DeltaGatesParams>();
  const T* a = l.buffer<const T>(DELTA_GATES_A);
  const float* a_log = l.buffer<const float>(DELTA_GATES_A_LOG);
  const float* dt_bias = l.buffer<const float>(DELTA_GATES_DT_BIAS);
  float* g = l.buffer<float>(DELTA_GATES_G);
  const size_t heads = p.heads, channels = p.channels;
  const size_t first = l.begin * p.rowsPerThreadgroup, end = l.end * p.rowsPerThreadgroup;
  for (size_t row = first; row < end && row < p.rows; ++row) {
    const size_t at = row * heads;
    betas(l.buffer<float>(DELTA_GATES_BETA) + at, l.buffer<const T>(DELTA_GATES_B) + at, heads, p.betaScale);
    if (channels == 1)
      gates_of_heads(g + at, a + at, a_log, dt_bias, heads, p.lowerBound);
    else
      for (size_t head = 0; head < heads; ++head)
        gates_of_channels(g + (at + head) * channels, a + (at + head) * channels, a_log[head],
                          dt_bias + head * channels, channels, p.lowerBound);
  }
}

}  // namespace

MLXTS_KERNEL(delta_gates_f32, delta_gates<float>)
MLXTS_KERNEL(delta_gates_f16, delta_gates<f16>)
MLXTS_KERNEL(delta_gates_bf16, delta_gates<bf16>)
