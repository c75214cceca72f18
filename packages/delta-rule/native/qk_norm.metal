// One simdgroup: one row of q (threadgroups with y = 0) or k, divided by max(√(Σx² + eps), normFloor), or copied; zeros
// for tokens that the mask skips. Rows have a multiple of 8 elements.
#include "metal_kernel.h"
#include "qk_norm.params.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void qk_norm(device const T* q [[buffer(QK_NORM_Q)]], device const T* k [[buffer(QK_NORM_K)]],
                    device const uchar* mask [[buffer(QK_NORM_MASK)]], device T* q_unit [[buffer(QK_NORM_Q_UNIT)]],
                    device T* k_unit [[buffer(QK_NORM_K_UNIT)]], constant QkNormParams& p [[buffer(QK_NORM_PARAMS)]],
                    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group.x * QK_NORM_ROWS_PER_THREADGROUP + simdgroup;
  if (row >= p.rows) return;
  device const T* from = (group.y == 0 ? q : k) + ulong(row) * p.dim;
  device T* to = (group.y == 0 ? q_unit : k_unit) + ulong(row) * p.dim;
  if ((p.present & QK_NORM_HAS_MASK) && mask[row / p.keyHeads] == 0) {
    for (uint i = 4 * lane; i < p.dim; i += 4 * kSimd) store4(to + i, float4(0.0f));
    return;
  }
  float inverse = 1.0f;
  if (p.qkNorm) {
    float sum = 0.0f;
    for (uint i = 4 * lane; i < p.dim; i += 4 * kSimd) {
      const float4 v = load4(from + i);
      sum += dot(v, v);
    }
    const float norm = precise::sqrt(simd_sum(sum) + p.eps);
    inverse = 1.0f / (norm < p.normFloor ? p.normFloor : norm);
  }
  for (uint i = 4 * lane; i < p.dim; i += 4 * kSimd) store4(to + i, load4(from + i) * inverse);
}

#define QK_NORM(name, T) template [[host_name("qk_norm_" name)]] [[kernel]] decltype(qk_norm<T>) qk_norm<T>;
QK_NORM("f32", float)
QK_NORM("f16", half)
QK_NORM("bf16", bfloat)
