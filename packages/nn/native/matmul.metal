// One threadgroup: groupRows × kColumns outputs. Pieces of x and of the weight go through threadgroup memory, both with the
// contracted dimension along rows; each of the four simdgroups has 16 columns of all rows in 8 × 8 accumulators.
#include "matmul.params.h"
#include "metal_kernel.h"
#include "metal_matrix.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kColumns = MATMUL_COLUMNS, kDepth = MATMUL_DEPTH, kThreads = MATMUL_THREADS;
constant constexpr int kRowFragments = MATMUL_ROWS / 8, kFragments = kColumns / (kThreads / kSimd) / 8;

// Elements of a row in threadgroup memory: its padding puts the rows of a fragment into different banks.
template <typename E>
constexpr uint row_stride() {
  return kDepth + MATMUL_ROW_PADDING / sizeof(E);
}

// Copies `tileRows` × kDepth elements of a row-major matrix of which `rows` × `depth` are left; zeros for the others.
template <typename E, typename T>
METAL_FUNC void stage(device const T* from, uint stride, uint rows, uint depth, threadgroup E* to, uint tileRows,
                      uint index) {
  const uint column = index % (kDepth / 4) * 4;
  for (uint r = index / (kDepth / 4); r < tileRows; r += kThreads / (kDepth / 4)) {
    device const T* at = from + ulong(r) * stride + column;
    threadgroup E* e = to + r * row_stride<E>() + column;
    if (r < rows && column + 4 <= depth) {
      const float4 v = load4(at);
      for (uint i = 0; i < 4; ++i) e[i] = E(v[i]);
    } else {
      for (uint i = 0; i < 4; ++i) e[i] = r < rows && column + i < depth ? E(float(at[i])) : E(0.0f);
    }
  }
}

// Copies kColumns × kDepth elements of a matrix whose rows are the contracted dimension: it is transposed.
template <typename E, typename T>
METAL_FUNC void stage_transposed(device const T* from, uint stride, uint rows, uint depth, threadgroup E* to, uint index) {
  const uint row = index % (kColumns / 4) * 4;
  for (uint d = index / (kColumns / 4); d < kDepth; d += kThreads / (kColumns / 4)) {
    device const T* at = from + ulong(d) * stride + row;
    threadgroup E* e = to + row * row_stride<E>() + d;
    if (d < depth && row + 4 <= rows) {
      const float4 v = load4(at);
      for (uint i = 0; i < 4; ++i) e[i * row_stride<E>()] = E(v[i]);
    } else {
      for (uint i = 0; i < 4; ++i) e[i * row_stride<E>()] = d < depth && row + i < rows ? E(float(at[i])) : E(0.0f);
    }
  }
}

// The sums of a simdgroup: all rows of its columns.
struct Sums {
  simdgroup_float8x8 at[kRowFragments][kFragments];
};

// Adds the products of a piece of `depth` elements; `used` row fragments have rows, `column` is the simdgroup's first.
template <typename E>
METAL_FUNC void multiply(threadgroup const E* x, threadgroup const E* weight, uint depth, int used, uint column,
                         thread Sums& sums) {
  constexpr uint kStride = row_stride<E>();
  for (uint k = 0; k < depth; k += 8) {
    simdgroup_matrix<E, 8, 8> a, b[kFragments];
    MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
      simdgroup_load(b[j], weight + (column + j * 8) * kStride + k, kStride, ulong2(0), true);
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      simdgroup_load(a, x + i * 8 * kStride + k, kStride);
      MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
        simdgroup_multiply_accumulate(sums.at[i][j], a, b[j], sums.at[i][j]);
      }
    }
  }
}

// Rounds the sums of `rows` rows, with the bias added, to the output; `m0` and `n0` are their first row and column.
template <typename X, typename O>
METAL_FUNC void store_sums(thread Sums& sums, device const X* bias, device O* out, constant MatmulParams& p, uint m0,
                           uint rows, uint n0, uint lane) {
  MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint n = n0 + j * 8 + matrix_column(lane) + e;
      if (n >= p.n) continue;
      float add = 0.0f;
      if (p.present & MATMUL_HAS_BIAS) add = p.biasF32 ? ((device const float*)bias)[n] : float(bias[n]);
      MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
        const uint m = i * 8 + matrix_row(lane);
        if (m < rows) out[ulong(m0 + m) * p.n + n] = O(sums.at[i][j].thread_elements()[e] + add);
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
  const MatmulScratch scratch = scratch_of(memory, p);
  threadgroup E* staged_x = (threadgroup E*)scratch.x;
  threadgroup E* staged_weight = (threadgroup E*)scratch.weight;
  const uint n0 = group.x * kColumns, m0 = group.y * p.groupRows;
  const uint columns = min(p.n - n0, kColumns), rows = min(p.m - m0, p.groupRows);
  const int used = (rows + 7) / 8;
  const uint column = simdgroup * kFragments * 8;
  Sums sums;
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    MLXTS_UNROLL for (int j = 0; j < kFragments; ++j) sums.at[i][j] = simdgroup_float8x8(0.0f);
  }
  for (uint k0 = 0; k0 < p.k; k0 += kDepth) {
    const uint depth = min(p.k - k0, kDepth);
    if (k0 > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage(x + ulong(m0) * p.k + k0, p.k, rows, depth, staged_x, used * 8, index);
    if (p.transpose)
      stage(weight + ulong(n0) * p.k + k0, p.k, columns, depth, staged_weight, kColumns, index);
    else
      stage_transposed(weight + ulong(k0) * p.n + n0, p.n, columns, depth, staged_weight, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (column < columns) multiply(staged_x, staged_weight, depth, used, column, sums);
  }
  store_sums(sums, bias, out, p, m0, rows, n0 + column, lane);
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
