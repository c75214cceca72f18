// One thread: one gate, and that of a head's first channel its beta.
#include "delta_gates.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

// log(1 + u) for u ≥ 0, right to the last bits for tiny u too. With w = 1 + u = 2^n·m, m around 1:
// log w = n·log 2 + 2·artanh((m − 1)/(m + 1)).
METAL_FUNC float log_one_plus(float u) {
  const float w = 1.0f + u;
  const uint n = (as_type<uint>(w) - 0x3f3504f3u) >> 23;
  const float m = as_type<float>(as_type<uint>(w) - (n << 23));
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float series = fma(fma(fma(2.0f / 9.0f, z, 2.0f / 7.0f), z, 2.0f / 5.0f), z, 2.0f / 3.0f);
  // The high part of log 2 has so few digits that n times it is exact.
  const float log_w = float(n) * 0.693145751953125f + (float(n) * 1.428606765330187e-6f + (series * z * s + (s + s)));
  // What 1 + u lost in rounding, divided by w, is the derivative's correction; for tiny u it is all there is.
  return log_w + (u - (w - 1.0f)) / w;
}

template <typename T>
kernel void delta_gates(device const T* a [[buffer(DELTA_GATES_A)]], device const T* b [[buffer(DELTA_GATES_B)]],
                        device const float* a_log [[buffer(DELTA_GATES_A_LOG)]],
                        device const float* dt_bias [[buffer(DELTA_GATES_DT_BIAS)]],
                        device float* g [[buffer(DELTA_GATES_G)]], device float* beta [[buffer(DELTA_GATES_BETA)]],
                        constant DeltaGatesParams& p [[buffer(DELTA_GATES_PARAMS)]],
                        uint at [[thread_position_in_grid]]) {
  if (at >= p.rows * p.heads * p.channels) return;
  const uint token_head = at / p.channels;
  const float x = float(a[at]) + dt_bias[at % (p.heads * p.channels)], rate = precise::exp(a_log[token_head % p.heads]);
  if (p.lowerBound < 0.0f)
    g[at] = times_sigmoid(p.lowerBound, 1.0f, rate * x);
  else
    g[at] = -rate * (x > 20.0f ? x : log_one_plus(precise::exp(x)));
  if (at % p.channels == 0) beta[token_head] = times_sigmoid(p.betaScale, 1.0f, float(b[token_head]));
}

#define DELTA_GATES(name, T) \
  template [[host_name("delta_gates_" name)]] [[kernel]] decltype(delta_gates<T>) delta_gates<T>;
DELTA_GATES("f32", float)
DELTA_GATES("f16", half)
DELTA_GATES("bf16", bfloat)
