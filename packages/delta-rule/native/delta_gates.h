// The gates of the delta rule, for the kernels that compute them.
#pragma once
#include "simd.h"

namespace mlxts {

MLXTS_INLINE vf32 softplus(vf32 x) {
  const vf32 u = exp(min(x, splat(20.0f)));
  const vf32 w = splat(1.0f) + u;
  // log(1 + u): 1 + u is rounded to w, and (u − (w − 1)) / w is what log w lacks of it. For tiny u that is all there
  // is.
  const vf32 small = log(w) + (u - (w - splat(1.0f))) / w;
  return select(x != x, x, select(x > splat(20.0f), x, small));
}

// −rate · softplus(x), or lower_bound · σ(rate · x), with rate = exp(log_rate).
MLXTS_INLINE vf32 gate_of(vf32 x, vf32 log_rate, float lower_bound) {
  const vf32 rate = exp(log_rate);
  return lower_bound < 0 ? times_sigmoid(splat(lower_bound), splat(1.0f), rate * x) : -rate * softplus(x);
}

// scale · σ(x)
MLXTS_INLINE vf32 beta_of(vf32 x, float scale) { return times_sigmoid(splat(scale), splat(1.0f), x); }

}  // namespace mlxts
