// A threadgroup has 128 outputs of a head for some tokens; a lane has four neighbors of them. The simdgroups share the
// rows of the weight, each of which is read once, and put their sums together token by token.
#include "head_rows.params.h"
#include "weight_metal.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kColumns = HEAD_ROWS_GROUP_COLUMNS, kSimdgroups = HEAD_ROWS_SIMDGROUPS;
static_assert(kColumns == 4 * kSimd, "a lane has four outputs");

// For up to M tokens.
template <uint M, typename X, typename W>
METAL_FUNC void add_rows(device const X* x, thread const W& weight, device float* out, constant HeadRowsParams& p,
                         threadgroup float* partial, uint3 group, uint lane, uint simdgroup) {
  const uint token = group.z * HEAD_ROWS_TOKENS, tokens = min(p.tokens - token, M);
  const uint column = group.x * kColumns + 4 * lane, head = group.y;
  const uint columns = column < p.n ? min(p.n - column, 4u) : 0;
  float4 sum[M];
  MLXTS_UNROLL for (uint m = 0; m < M; ++m) sum[m] = float4(0.0f);
  for (uint i = simdgroup; i < p.k; i += kSimdgroups) {
    const float4 w = weight.some(i, column, columns);
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) if (m < tokens) sum[m] =
        fma(w, float4(float(x[head_x(p, token + m, head) + i])), sum[m]);
  }
  MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
    if (m >= tokens) continue;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = 0; c < 4; ++c) partial[simdgroup * kColumns + 4 * lane + c] = sum[m][c];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup > 0) continue;
    for (uint c = 0; c < columns; ++c) {
      float total = 0.0f;
      for (uint s = 0; s < kSimdgroups; ++s) total += partial[s * kColumns + 4 * lane + c];
      out[head_out(p, token + m, head) + column + c] = total;
    }
  }
}

template <typename X, typename W>
kernel void head_rows(device const X* x [[buffer(HEAD_ROWS_X)]],
                      device const typename W::Word* words [[buffer(HEAD_ROWS_WEIGHT)]],
                      device const typename W::Scale* scales [[buffer(HEAD_ROWS_SCALES)]],
                      device const typename W::Scale* biases [[buffer(HEAD_ROWS_BIASES)]],
                      device float* out [[buffer(HEAD_ROWS_OUT)]],
                      constant HeadRowsParams& p [[buffer(HEAD_ROWS_PARAMS)]],
                      threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* partial = scratch_of(memory, p).partial;
  W weight;
  open(weight, words, scales, biases, p, group.y);
  if (p.tokens - group.z * HEAD_ROWS_TOKENS == 1)
    add_rows<1>(x, weight, out, p, partial, group, lane, simdgroup);
  else
    add_rows<HEAD_ROWS_TOKENS>(x, weight, out, p, partial, group, lane, simdgroup);
}

#define HEAD_ROWS(name, X, ...) \
  template [[host_name("head_rows_" name)]] [[kernel]] decltype(head_rows<X, __VA_ARGS__>) head_rows<X, __VA_ARGS__>;
#define HEAD_ROWS_OF(w, ...)                 \
  HEAD_ROWS("f32_" w, float, __VA_ARGS__)    \
  HEAD_ROWS("f16_" w, half, __VA_ARGS__)     \
  HEAD_ROWS("bf16_" w, bfloat, __VA_ARGS__)
MLXTS_WEIGHTS(HEAD_ROWS_OF)
