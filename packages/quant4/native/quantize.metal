// One threadgroup: one row. One simdgroup: one group at a time, a lane having the group's next 1, 2 or 4 columns.
#include "metal_kernel.h"
#include "quantize.params.h"

using namespace metal;
using namespace mlxts;

// Reports the first value that is no number, of which there is one in row `last` or before; by one simdgroup.
template <typename T>
METAL_FUNC void report_first(device const T* w, uint cols, uint last, uint lane, device MlxtsFault* fault) {
  if (!simd_any(lane == 0 && claim_fault(fault))) return;
  for (uint row = 0; row <= last; ++row) {
    device const T* from = w + ulong(row) * cols;
    for (uint c = lane; c < cols; c += kSimd) {
      const float v = float(from[c]);
      const uint first = simd_min(isfinite(v) ? ~0u : c);
      if (first == c) write_fault(fault, QUANTIZE_FAULT_NOT_FINITE, as_type<uint>(v), row, c);
      if (first != ~0u) return;
    }
  }
}

template <typename T, int Bits>
kernel void quantize(device const T* w [[buffer(QUANTIZE_W)]], device uint* weight [[buffer(QUANTIZE_WEIGHT)]],
                     device T* scales [[buffer(QUANTIZE_SCALES)]], device T* biases [[buffer(QUANTIZE_BIASES)]],
                     constant QuantizeParams& p [[buffer(QUANTIZE_PARAMS)]],
                     device MlxtsFault* fault [[buffer(QUANTIZE_FAULT)]], uint row [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  const float n = float((1 << Bits) - 1);
  const uint groups = p.cols / p.groupSize, columns = p.groupSize / kSimd;
  const uint lanes = 32 / (Bits * columns);  // of a word
  for (uint g = simdgroup; g < groups; g += simdgroups) {
    const ulong group = ulong(row) * groups + g;
    device const T* from = w + group * p.groupSize + lane * columns;
    float v[4];
    float least = INFINITY, most = p.gpu ? 0.0f : -INFINITY;
    bool numbers = true;
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      if (i < columns) {
        v[i] = float(from[i]);
        least = min(least, v[i]);
        most = max(most, v[i]);
        numbers = numbers && isfinite(v[i]);
      }
    }
    if (!simd_all(numbers)) return report_first(w, p.cols, row, lane, fault);
    least = simd_min(least);
    most = simd_max(most);

    float scale = max((most - least) / n, 1e-7f), bias = 0.0f;
    const bool negative = abs(least) > abs(most);
    if (!negative) scale = -scale;
    const float edge = negative ? least : most;
    const float q0 = p.gpu ? round(edge / scale) : rint(edge / scale);
    if (q0 != 0.0f) {
      scale = edge / q0;
      bias = edge;
    }
    if (lane == 0) {
      scales[group] = T(scale);
      biases[group] = T(bias);
    }

    uint word = 0;
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      if (i < columns) {
        // Clamped before rounding: the bounds are integers, so it is the same.
        const float x = clamp((v[i] - bias) / scale, 0.0f, n);
        word |= uint(p.gpu ? round(x) : rint(x)) << (i * Bits);
      }
    }
    word <<= lane % lanes * columns * Bits;
    for (uint step = 1; step < lanes; step *= 2) word |= simd_shuffle_xor(word, step);
    if (lane % lanes == 0) weight[group * (p.groupSize / 32 * Bits) + lane / lanes] = word;
  }
}

#define QUANTIZE(name, T)                                                                            \
  template [[host_name("quantize_" name "_b2")]] [[kernel]] decltype(quantize<T, 2>) quantize<T, 2>; \
  template [[host_name("quantize_" name "_b4")]] [[kernel]] decltype(quantize<T, 4>) quantize<T, 4>; \
  template [[host_name("quantize_" name "_b8")]] [[kernel]] decltype(quantize<T, 8>) quantize<T, 8>;
QUANTIZE("f32", float)
QUANTIZE("f16", half)
QUANTIZE("bf16", bfloat)
