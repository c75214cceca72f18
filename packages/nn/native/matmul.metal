// One threadgroup: groupRows × 64 outputs. Pieces of x and of the weight go through threadgroup memory, both with the
// contracted dimension along rows; each of the four simdgroups has 16 columns of all rows in 8 × 8 accumulators.
#include "matmul.params.h"
#include "metal_kernel.h"
#include "metal_matrix.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kColumns = MATMUL_GPU_COLUMNS, kDepth = MATMUL_GPU_DEPTH, kThreads = MATMUL_GPU_THREADS;
constant constexpr int kRowFragments = MATMUL_GPU_ROWS / 8, kFragments = kColumns / (kThreads / kSimd) / 8;

// Rows of threadgroup memory start 16 bytes apart from whole lines, so that the rows of a fragment lie in other banks.
template <typename E>
constexpr uint padded_depth() {
  return kDepth + 16 / sizeof(E);
}

// `tileRows` × kDepth of a row-major matrix that ends after `rows` and `depth`; zeros from there on.
template <typename E, typename T>
METAL_FUNC void stage(device const T* from, uint stride, uint rows, uint depth, threadgroup E* to, uint tileRows,
                      uint index) {
  const uint column = index % (kDepth / 4) * 4;
  for (uint r = index / (kDepth / 4); r < tileRows; r += kThreads / (kDepth / 4)) {
    device const T* at = from + ulong(r) * stride + column;
    threadgroup E* e = to + r * padded_depth<E>() + column;
    if (r < rows && column + 4 <= depth) {
      const float4 v = load4(at);
      for (uint i = 0; i < 4; ++i) e[i] = E(v[i]);
    } else {
      for (uint i = 0; i < 4; ++i) e[i] = r < rows && column + i < depth ? E(float(at[i])) : E(0.0f);
    }
  }
}

// The same of a matrix that lies the other way: its rows are the contracted dimension.
template <typename E, typename T>
METAL_FUNC void stage_turned(device const T* from, uint stride, uint rows, uint depth, threadgroup E* to, uint index) {
  const uint row = index % (kColumns / 4) * 4;
  for (uint d = index / (kColumns / 4); d < kDepth; d += kThreads / (kColumns / 4)) {
    device const T* at = from + ulong(d) * stride + row;
    threadgroup E* e = to + row * padded_depth<E>() + d;
    if (d < depth && row + 4 <= rows) {
      const float4 v = load4(at);
      for (uint i = 0; i < 4; ++i) e[i * padded_depth<E>()] = E(v[i]);
    } else {
      for (uint i = 0; i < 4; ++i) e[i * padded_depth<E>()] = d < depth && row + i < rows ? E(float(at[i])) : E(0.0f);
    }
  }
}

template <typename E, typename X, typename W, typename O>
METAL_FUNC void multiply(device const X* x, device const W* weight, device const X* bias, device O* out,
                         constant MatmulParams& p, threadgroup E* staged, uint2 group, uint index, uint lane,
                         uint simdgroup) {
  constexpr uint kStride = padded_depth<E>();
  const uint n0 = group.x * kColumns, m0 = group.y * p.groupRows;
  const uint columns = min(p.n - n0, kColumns), rows = min(p.m - m0, p.groupRows);
  const int used = (rows + 7) / 8;
  threadgroup E* staged_w = staged + p.groupRows * kStride;
  // Each simdgroup has all rows of its columns.
  const uint column = simdgroup * kFragments * 8;
  simdgroup_float8x8 sum[kRowFragments][kFragments];
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) sum[i][j] = simdgroup_float8x8(0.0f);
  }
  for (uint k0 = 0; k0 < p.k; k0 += kDepth) {
    const uint depth = min(p.k - k0, kDepth);
    if (k0 > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage(x + ulong(m0) * p.k + k0, p.k, rows, depth, staged, used * 8, index);
    if (p.transpose)
      stage(weight + ulong(n0) * p.k + k0, p.k, columns, depth, staged_w, kColumns, index);
    else
      stage_turned(weight + ulong(k0) * p.n + n0, p.n, columns, depth, staged_w, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (column >= columns) continue;
    for (uint k = 0; k < depth; k += 8) {
      simdgroup_matrix<E, 8, 8> a, b[kFragments];
      MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
        simdgroup_load(b[j], staged_w + (column + j * 8) * kStride + k, kStride, ulong2(0), true);
      }
      MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
        if (i >= used) continue;
        simdgroup_load(a, staged + i * 8 * kStride + k, kStride);
        MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
          simdgroup_multiply_accumulate(sum[i][j], a, b[j], sum[i][j]);
        }
      }
    }
  }
  MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint n = n0 + column + j * 8 + matrix_column(lane) + e;
      if (n >= p.n) continue;
      float add = 0.0f;
      if (p.present & MATMUL_HAS_BIAS) add = p.biasF32 ? ((device const float*)bias)[n] : float(bias[n]);
      MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
        const uint m = i * 8 + matrix_row(lane);
        if (m < rows) out[ulong(m0 + m) * p.n + n] = O(sum[i][j].thread_elements()[e] + add);
      }
    }
  }
}

template <typename X, typename W, typename O>
kernel void matmul(device const X* x [[buffer(MATMUL_X)]], device const W* weight [[buffer(MATMUL_WEIGHT)]],
                   device const X* bias [[buffer(MATMUL_BIAS)]], device O* out [[buffer(MATMUL_OUT)]],
                   constant MatmulParams& p [[buffer(MATMUL_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // Products of two numbers of one dtype are exact in float; where the dtypes differ, float holds both.
  using E = conditional_t<is_same_v<X, W>, X, float>;
  multiply(x, weight, bias, out, p, (threadgroup E*)memory, group, index, lane, simdgroup);
}

#define MATMUL(name, X, W, O) \
  template [[host_name("matmul_" name)]] [[kernel]] decltype(matmul<X, W, O>) matmul<X, W, O>;
#define MATMUL_OUTPUTS(x_w, X, W) \
  MATMUL(x_w "_f32", X, W, float) \
  MATMUL(x_w "_f16", X, W, half)  \
  MATMUL(x_w "_bf16", X, W, bfloat)
#define MATMUL_WEIGHTS(x, X)         \
  MATMUL_OUTPUTS(x "_f32", X, float) \
  MATMUL_OUTPUTS(x "_f16", X, half)  \
  MATMUL_OUTPUTS(x "_bf16", X, bfloat)
MATMUL_WEIGHTS("f32", float)
MATMUL_WEIGHTS("f16", half)
MATMUL_WEIGHTS("bf16", bfloat)
