// One simdgroup: rows of q (threadgroups with y = 0, where there is q) or k, divided by max(√(Σx² + eps), normFloor),
// or copied; zeros for tokens that the mask skips. Rows have a multiple of 8 elements.
#include "qk_norm.params.h"
#include "unit_rows_metal.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = QK_NORM_ROWS_PER_SIMDGROUP;

template <typename T>
kernel void qk_norm(device const T* q [[buffer(QK_NORM_Q)]], device const T* k [[buffer(QK_NORM_K)]],
                    device const uchar* mask [[buffer(QK_NORM_MASK)]], device T* q_unit [[buffer(QK_NORM_Q_UNIT)]],
                    device T* k_unit [[buffer(QK_NORM_K_UNIT)]], constant QkNormParams& p [[buffer(QK_NORM_PARAMS)]],
                    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint first = group.x * QK_NORM_ROWS_PER_THREADGROUP + simdgroup * kRows;
  const bool queries = group.y == 0 && (p.present & QK_NORM_HAS_Q);
  device const T* from = (queries ? q : k) + ulong(first) * p.dim;
  device T* to = (queries ? q_unit : k_unit) + ulong(first) * p.dim;
  const uint own = 4 * lane;
  const RowNorm norm = {p.eps, p.normFloor};
  // The first elements of all rows at once; most rows have no others.
  float4 v[kRows];
  bool real[kRows];
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    real[r] = first + r < p.rows && !((p.present & QK_NORM_HAS_MASK) && mask[(first + r) / p.keyHeads] == 0);
    v[r] = real[r] && own < p.dim ? load4(from + r * p.dim + own) : float4(0.0f);
  }
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    device const T* row = from + r * p.dim;
    float inverse = real[r] ? 1.0f : 0.0f;
    if (p.qkNorm && real[r]) {
      float sum = dot(v[r], v[r]);
      for (uint i = own + 4 * kSimd; i < p.dim; i += 4 * kSimd) {
        const float4 more = load4(row + i);
        sum += dot(more, more);
      }
      inverse = inverse_norm(simd_sum(sum), norm);
    }
    if (first + r >= p.rows || own >= p.dim) continue;
    store4(to + r * p.dim + own, v[r] * inverse);
    for (uint i = own + 4 * kSimd; i < p.dim; i += 4 * kSimd)
      store4(to + r * p.dim + i, real[r] ? load4(row + i) * inverse : float4(0.0f));
  }
}

#define QK_NORM(name, T) template [[host_name("qk_norm_" name)]] [[kernel]] decltype(qk_norm<T>) qk_norm<T>;
QK_NORM("f32", float)
QK_NORM("f16", half)
QK_NORM("bf16", bfloat)
