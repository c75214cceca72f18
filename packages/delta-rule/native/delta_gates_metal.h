// The gates of the delta rule, for the kernels that compute them.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// log(1 + u) for u ≥ 0, right to the last bits for tiny u too. With w = 1 + u = 2^n·m, m around 1:
// log w = n·log 2 + 2·artanh((m − 1)/(m + 1)).
METAL_FUNC float log_one_plus(float u) {
  const float w = 1.0f + u;
  const uint n = (as_type<uint>(w) - 0x3f3504f3u) >> 23;
  const float m = as_type<float>(as_type<uint>(w) - (n << 23));
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float series = metal::fma(metal::fma(metal::fma(2.0f / 9.0f, z, 2.0f / 7.0f), z, 2.0f / 5.0f), z, 2.0f / 3.0f);
  // The high part of log 2 has so few digits that n times it is exact.
  const float log_w = float(n) * 0.693145751953125f + (float(n) * 1.428606765330187e-6f + (series * z * s + (s + s)));
  // What 1 + u lost in rounding, divided by w, is the derivative's correction; for tiny u it is all there is.
  return log_w + (u - (w - 1.0f)) / w;
}

// −rate · softplus(x), or lower_bound · σ(rate · x), with rate = exp(log_rate).
METAL_FUNC float gate_of(float x, float log_rate, float lower_bound) {
  const float rate = metal::precise::exp(log_rate);
  if (lower_bound < 0.0f) return times_sigmoid(lower_bound, 1.0f, rate * x);
  return -rate * (x > 20.0f ? x : log_one_plus(metal::precise::exp(x)));
}

// scale · σ(x)
METAL_FUNC float beta_of(float x, float scale) { return times_sigmoid(scale, 1.0f, x); }

}  // namespace mlxts
