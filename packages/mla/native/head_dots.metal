// Each simdgroup multiplies four rows of a head's weight by some tokens, 128 neighboring columns at a time.
#include "head_dots.params.h"
#include "weight_metal.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = HEAD_DOTS_SIMDGROUP_ROWS;

// sum + w · v, in an order that a compiler keeps: a token has the same bits for every M.
METAL_FUNC float add_product(float sum, float4 w, float4 v) {
  return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
}

// For up to M tokens from `token` on.
template <uint M, typename X, typename W, typename O>
METAL_FUNC void dot_rows(device const X* x, thread const W& weight, device O* out, constant HeadDotsParams& p,
                         uint token, uint first, uint head, uint lane) {
  const uint tokens = min(p.tokens - token, M);
  uint rows[kRows];
  float sum[kRows][M];
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    rows[r] = min(first + r, p.n - 1);
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) sum[r][m] = 0.0f;
  }
  for (uint k = 4 * lane; k < p.k; k += 4 * kSimd) {
    const uint count = min(p.k - k, 4u);
    float4 w[kRows];
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) w[r] = weight.some(rows[r], k, count);
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
      if (m >= tokens) continue;
      const float4 v = load_some(x + head_x(p, token + m, head) + k, count);
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][m] = add_product(sum[r][m], w[r], v);
    }
  }
  MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
    if (m >= tokens) continue;
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
      const float total = simd_sum(sum[r][m]);
      if (lane == 0 && first + r < p.n) out[head_out(p, token + m, head) + first + r] = O(total);
    }
  }
}

template <typename X, typename W, typename O>
kernel void head_dots(device const X* x [[buffer(HEAD_DOTS_X)]],
                      device const typename W::Word* words [[buffer(HEAD_DOTS_WEIGHT)]],
                      device const typename W::Scale* scales [[buffer(HEAD_DOTS_SCALES)]],
                      device const typename W::Scale* biases [[buffer(HEAD_DOTS_BIASES)]],
                      device O* out [[buffer(HEAD_DOTS_OUT)]],
                      constant HeadDotsParams& p [[buffer(HEAD_DOTS_PARAMS)]],
                      uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint first = (group.x * HEAD_DOTS_SIMDGROUPS + simdgroup) * kRows, head = group.y;
  if (first >= p.n) return;
  W weight;
  open(weight, words, scales, biases, p, head);
  const uint token = group.z * HEAD_DOTS_TOKENS;
  if (p.tokens - token == 1)
    dot_rows<1>(x, weight, out, p, token, first, head, lane);
  else
    dot_rows<HEAD_DOTS_TOKENS>(x, weight, out, p, token, first, head, lane);
}

#define HEAD_DOTS(name, X, O, ...) \
  template [[host_name("head_dots_" name)]] [[kernel]] decltype(head_dots<X, __VA_ARGS__, O>) head_dots<X, __VA_ARGS__, O>;
#define HEAD_DOTS_OF(w, ...)                             \
  HEAD_DOTS("f32_" w "_f32", float, float, __VA_ARGS__)  \
  HEAD_DOTS("f16_" w "_f32", half, float, __VA_ARGS__)   \
  HEAD_DOTS("bf16_" w "_f32", bfloat, float, __VA_ARGS__)  \
  HEAD_DOTS("f32_" w "_f16", float, half, __VA_ARGS__)   \
  HEAD_DOTS("f32_" w "_bf16", float, bfloat, __VA_ARGS__)
MLXTS_WEIGHTS(HEAD_DOTS_OF)
