// Each simdgroup multiplies four rows of a head's weight by all tokens, 128 neighboring columns at a time.
#include "head_dots.params.h"
#include "head_weight.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = HEAD_DOTS_SIMDGROUP_ROWS;

// For up to M tokens.
template <uint M, typename W, typename O>
METAL_FUNC void dot_rows(device const float* x, device const W* weight, device O* out, constant HeadDotsParams& p,
                         uint first, uint head, uint lane) {
  device const W* rows[kRows];
  float sum[kRows][M];
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    rows[r] = weight + head_weight(p, head, min(first + r, p.n - 1));
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) sum[r][m] = 0.0f;
  }
  uint k = 4 * lane;
  for (; k + 4 <= p.k; k += 4 * kSimd) {
    float4 w[kRows];
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) w[r] = load4(rows[r] + k);
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
      if (m >= p.tokens) continue;
      const float4 v = load4(x + head_x(p, m, head) + k);
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][m] += dot(w[r], v);
    }
  }
  for (; k < p.k; ++k) {
    MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
      if (m >= p.tokens) continue;
      const float v = x[head_x(p, m, head) + k];
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][m] = fma(float(rows[r][k]), v, sum[r][m]);
    }
  }
  MLXTS_UNROLL for (uint m = 0; m < M; ++m) {
    if (m >= p.tokens) continue;
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
      const float total = simd_sum(sum[r][m]);
      if (lane == 0 && first + r < p.n) out[head_out(p, m, head) + first + r] = O(total);
    }
  }
}

template <typename W, typename O>
kernel void head_dots(device const float* x [[buffer(HEAD_DOTS_X)]],
                      device const W* weight [[buffer(HEAD_DOTS_WEIGHT)]], device O* out [[buffer(HEAD_DOTS_OUT)]],
                      constant HeadDotsParams& p [[buffer(HEAD_DOTS_PARAMS)]],
                      uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint first = (group.x * HEAD_DOTS_SIMDGROUPS + simdgroup) * kRows, head = group.y;
  if (first >= p.n) return;
  if (p.tokens == 1)
    dot_rows<1>(x, weight, out, p, first, head, lane);
  else
    dot_rows<HEAD_DOTS_TOKENS>(x, weight, out, p, first, head, lane);
}

#define HEAD_DOTS(name, W, O) \
  template [[host_name("head_dots_f32_" name)]] [[kernel]] decltype(head_dots<W, O>) head_dots<W, O>;
#define HEAD_DOTS_OUTPUTS(w, W) \
  HEAD_DOTS(w "_f32", W, float) \
  HEAD_DOTS(w "_f16", W, half)  \
  HEAD_DOTS(w "_bf16", W, bfloat)
HEAD_DOTS_OUTPUTS("f32", float)
HEAD_DOTS_OUTPUTS("f16", half)
HEAD_DOTS_OUTPUTS("bf16", bfloat)
