// Rows that meet the contracted dimension of a product by AMX, as right tiles: two by two, column by column.
#pragma once
#include "amx_product.h"
#if defined(__AMX_BF16__)
#include "matrix_pack.h"

namespace mlxts {

// Rows 0 … `count` − 1, at most kTileDepth, of up to as many `columns`; zeros behind them. The second 16 columns become
// a tile `next` elements behind the first one's. Returns whether all are finite, where that is `Checked`.
template <bool Checked>
MLXTS_INLINE bool pack_pairs(const bf16* from, size_t stride, size_t count, size_t columns, bf16* to, size_t next) {
  const __m512i exponent = _mm512_set1_epi32(0x7f807f80);
  __mmask32 infinite = 0;
  const auto row = [&](size_t r) {
    if (r >= count) return vu32{};
    const bf16* at = from + r * stride;
    const vu32 v = columns >= kTileDepth ? load_bf16x2(at) : load_bf16x2_partial(at, int(columns));
    if constexpr (Checked)
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(reinterpret_cast<__m512i>(v), exponent), exponent);
    return v;
  };
  for (size_t r = 0; r < kTileDepth; r += 2, to += kTileDepth) {
    const vu32 a = row(r), b = row(r + 1);
    vu32 low, high;
    interleave_bf16(a, b, low, high);
    memcpy(to, &low, sizeof low);
    if (columns > kAmxRows) memcpy(to + next, &high, sizeof high);
  }
  return infinite == 0;
}

}  // namespace mlxts
#endif
