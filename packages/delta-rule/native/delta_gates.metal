// One thread: one gate, and that of a head's first channel its beta.
#include "delta_gates.params.h"
#include "delta_gates_metal.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void delta_gates(device const T* a [[buffer(DELTA_GATES_A)]], device const T* b [[buffer(DELTA_GATES_B)]],
                        device const float* a_log [[buffer(DELTA_GATES_A_LOG)]],
                        device const float* dt_bias [[buffer(DELTA_GATES_DT_BIAS)]],
                        device float* g [[buffer(DELTA_GATES_G)]], device float* beta [[buffer(DELTA_GATES_BETA)]],
                        constant DeltaGatesParams& p [[buffer(DELTA_GATES_PARAMS)]],
                        uint at [[thread_position_in_grid]]) {
  if (at >= p.rows * p.heads * p.channels) return;
  const uint token_head = at / p.channels;
  const float x = float(a[at]) + dt_bias[at % (p.heads * p.channels)];
  g[at] = gate_of(x, a_log[token_head % p.heads], p.lowerBound);
  if (at % p.channels == 0) beta[token_head] = beta_of(float(b[token_head]), p.betaScale);
}

#define DELTA_GATES(name, T) \
  template [[host_name("delta_gates_" name)]] [[kernel]] decltype(delta_gates<T>) delta_gates<T>;
DELTA_GATES("f32", float)
DELTA_GATES("f16", half)
DELTA_GATES("bf16", bfloat)
