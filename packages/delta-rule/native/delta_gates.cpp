// One threadgroup: a block of rows, a head per lane; where channels have gates of their own, a channel per lane.
#include "cpu_kernel.h"
#include "delta_gates.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

MLXTS_INLINE vf32 softplus(vf32 x) {
  const vf32 u = exp(min(x, splat(20.0f)));
  const vf32 w = splat(1.0f) + u;
  // What 1 + u lost in rounding, divided by w, is the derivative's correction; for tiny u it is all there is.
  const vf32 small = log(w) + (u - (w - splat(1.0f))) / w;
  return select(x != x, x, select(x > splat(20.0f), x, small));
}

template <typename T>
void delta_gates(const Launch& l) {
  const auto& p = l.args<DeltaGatesParams>();
  const T* a = l.buffer<const T>(DELTA_GATES_A);
  const T* b = l.buffer<const T>(DELTA_GATES_B);
  const float* a_log = l.buffer<const float>(DELTA_GATES_A_LOG);
  const float* dt_bias = l.buffer<const float>(DELTA_GATES_DT_BIAS);
  float* g = l.buffer<float>(DELTA_GATES_G);
  float* beta = l.buffer<float>(DELTA_GATES_BETA);
  const vf32 beta_scale = splat(p.betaScale), lower = splat(p.lowerBound);
  const auto gate = [&](vf32 x, vf32 log_rate, vf32 bias) {
    const vf32 rate = exp(log_rate);
    return p.lowerBound < 0 ? times_sigmoid(lower, splat(1.0f), rate * (x + bias)) : -rate * softplus(x + bias);
  };
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end * p.rowsPerThreadgroup < p.rows ? l.end * p.rowsPerThreadgroup : p.rows;
  for (uint64_t row = first; row < last; ++row) {
    const uint64_t at = row * p.heads;
    for_lanes(
        p.heads, [&](size_t i) { store(beta + at + i, times_sigmoid(beta_scale, splat(1.0f), load(b + at + i))); },
        [&](size_t i, int n) { store_partial(beta + at + i, times_sigmoid(beta_scale, splat(1.0f), load_partial(b + at + i, n)), n); });
    if (p.channels == 1)
      for_lanes(
          p.heads, [&](size_t i) { store(g + at + i, gate(load(a + at + i), load(a_log + i), load(dt_bias + i))); },
          [&](size_t i, int n) {
            store_partial(g + at + i,
                          gate(load_partial(a + at + i, n), load_partial(a_log + i, n), load_partial(dt_bias + i, n)),
                          n);
          });
    else
      for (uint32_t head = 0; head < p.heads; ++head) {
        const T* x = a + (at + head) * p.channels;
        const float* bias = dt_bias + size_t(head) * p.channels;
        float* to = g + (at + head) * p.channels;
        const vf32 log_rate = splat(a_log[head]);
        for_lanes(
            p.channels, [&](size_t i) { store(to + i, gate(load(x + i), log_rate, load(bias + i))); },
            [&](size_t i, int n) {
              store_partial(to + i, gate(load_partial(x + i, n), log_rate, load_partial(bias + i, n)), n);
            });
      }
  }
}

}  // namespace

MLXTS_KERNEL(delta_gates_f32, delta_gates<float>)
MLXTS_KERNEL(delta_gates_f16, delta_gates<f16>)
MLXTS_KERNEL(delta_gates_bf16, delta_gates<bf16>)
