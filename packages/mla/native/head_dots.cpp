// One threadgroup: kGroupRows rows of a head's weight against all tokens. Rows are read in place, four at a time, while
// x, in the order in which they are loaded, stays in cache.
#include "head_dots.params.h"
#include "head_weight.h"
#include "matrix_reduce.h"
#include "matrix_rows.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupRows = HEAD_DOTS_GROUP_ROWS;
constexpr int kRows = 4;
// How far ahead each row of the weight is prefetched: rows outrun the hardware's prefetcher at every page.
constexpr size_t kAheadBytes = 2048;

// Tokens in one pass over the rows: as many as keep their sums in registers.
constexpr int kTokens = kLanes == 16 ? 4 : 2;

// sums[m] = the products of kRows rows of the weight with x[m], for M tokens.
template <typename W, int M>
__attribute__((noinline)) void dot_rows(const W* const (&weight)[kRows], const float* x, size_t x_stride, size_t k,
                                        vf32x4* sums) {
  vf32 sum[M][kRows] = {};
  const auto step = [&](size_t i, auto get) {
    vf32 a[kRows], b[kRows];
    MLXTS_UNROLL
    for (int r = 0; r < kRows; ++r) get(weight[r] + i, a[r], b[r]);
    MLXTS_UNROLL
    for (int m = 0; m < M; ++m) {
      const vf32 first = load(x + m * x_stride + i), second = load(x + m * x_stride + i + kLanes);
      MLXTS_UNROLL
      for (int r = 0; r < kRows; ++r) sum[m][r] = fma(b[r], second, fma(a[r], first, sum[m][r]));
    }
  };
  size_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes)
    step(i, [](const W* from, vf32& a, vf32& b) {
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
      load_two(from, a, b);
    });
  if (i < k) step(i, [&](const W* from, vf32& a, vf32& b) { load_two_partial(from, int(k - i), a, b); });
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = reduce_add4(sum[m]);
}

template <typename W, typename O>
void head_dots(const Launch& l) {
  const auto& p = l.args<HeadDotsParams>();
  const size_t blocks = l.threadgroups[0];
  float* x = scratch_of(l, p).x;  // [tokens, width]
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t first = group % blocks * kGroupRows, head = group / blocks;
    const size_t end = p.n - first < kGroupRows ? p.n : first + kGroupRows;
    for (size_t token = 0; token < p.tokens; ++token)
      to_load_order<W>(l.buffer<const float>(HEAD_DOTS_X) + head_x(p, token, head), p.k, x + token * p.width);
    for (size_t row = first; row < end; row += kRows) {
      const W* weight[kRows];  // the last row again in place of missing ones
      for (size_t r = 0; r < kRows; ++r)
        weight[r] = l.buffer<const W>(HEAD_DOTS_WEIGHT) + head_weight(p, head, row + r < end ? row + r : end - 1);
      for (size_t token = 0, some; token < p.tokens; token += some) {
        some = p.tokens - token >= kTokens ? kTokens : 1;
        vf32x4 sums[kTokens];
        const auto dot = some == 1 ? dot_rows<W, 1> : dot_rows<W, kTokens>;
        dot(weight, x + token * p.width, p.width, p.k, sums);
        for (size_t m = 0; m < some; ++m) {
          O* out = l.buffer<O>(HEAD_DOTS_OUT) + head_out(p, token + m, head) + row;
          for (size_t r = 0; r < kRows && row + r < end; ++r) out[r] = from_f32<O>(sums[m][r]);
        }
      }
    }
  }
}

}  // namespace

#define HEAD_DOTS(w, W)                                    \
  MLXTS_KERNEL(head_dots_f32_##w##_f32, head_dots<W, float>) \
  MLXTS_KERNEL(head_dots_f32_##w##_f16, head_dots<W, f16>)   \
  MLXTS_KERNEL(head_dots_f32_##w##_bf16, head_dots<W, bf16>)
HEAD_DOTS(f32, float)
HEAD_DOTS(f16, f16)
HEAD_DOTS(bf16, bf16)
