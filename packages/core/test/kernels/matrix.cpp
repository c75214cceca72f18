// Kernels that show the matrix headers to core's tests; matrix.ts declares them.
#include "cpu_kernel.h"
#include "dot_in_load_order.params.h"
#include "lane_sums.params.h"
#include "matrix_pack.h"
#include "matrix_reduce.h"
#include "matrix_rows.h"
#include "multiply_panels.params.h"
#include "multiply_tiles.params.h"
#include "transpose_matrix.params.h"

using namespace mlxts;

namespace {

void transpose_matrix(const Launch& l) {
  const auto& p = l.args<TransposeMatrixParams>();
  transpose(l.buffer<const float>(TRANSPOSE_MATRIX_FROM), p.fromStride, p.rows, p.columns,
            l.buffer<float>(TRANSPOSE_MATRIX_TO), p.toStride);
}

// P: what panels are made of; B: the dtype of b.
template <typename P, typename B>
void multiply_panels(const Launch& l) {
  const auto& p = l.args<MultiplyPanelsParams>();
  const auto* a = l.buffer<const Left<P>>(MULTIPLY_PANELS_A);
  const auto* b = l.buffer<const B>(MULTIPLY_PANELS_B);
  const auto* factors = l.buffer<const float>(MULTIPLY_PANELS_FACTORS);
  auto* panel = reinterpret_cast<P*>(l.buffer<float>(MULTIPLY_PANELS_PANELS));
  const size_t depth = (p.k + kPerElement<P> - 1) / kPerElement<P>, a_stride = depth * kPerElement<P>;
  for (uint32_t n = 0; n < p.n; n += kPanelColumns) {
    const int columns = int(p.n - n), vectors = (columns + kLanes - 1) / kLanes;
    if (p.transposed)
      pack_transposed(b + n * p.k, p.k, columns, p.k, 0, panel);
    else
      pack(b + n, p.n, columns, p.k, 0, panel);
    for (uint32_t m = 0; m < p.m; m += kPanelRows)
      multiply_panel(p.m - m < kPanelRows ? int(p.m - m) : kPanelRows, vectors < kTileVectors ? vectors : kTileVectors,
                     a + m * a_stride, a_stride, panel, depth, l.buffer<float>(MULTIPLY_PANELS_C) + m * p.cStride + n,
                     p.cStride, factors ? factors + m : nullptr);
  }
}

template <bool kBf16>
void multiply_tiles(const Launch& l) {
  const auto& p = l.args<MultiplyTilesParams>();
  const auto* b = l.buffer<const float>(MULTIPLY_TILES_B);
  auto* rounded = l.buffer<bf16x2>(MULTIPLY_TILES_ROUNDED);
  auto* c = l.buffer<float>(MULTIPLY_TILES_C);
  auto* written = l.buffer<float>(MULTIPLY_TILES_WRITTEN);
  const size_t stride = p.stride, depth = (p.k + 1) / 2;
  if (kBf16) narrow_rows_bf16x2(b, stride, p.k, stride, rounded, stride);
  for_tiles(
      p.m, [&](size_t end) { return p.triangle && end < p.n ? end : p.n; },
      [&](auto tile) {
        if constexpr (kBf16)
          tile.accumulate(l.buffer<const bf16>(MULTIPLY_TILES_A) + tile.row * depth * 2, depth * 2, 2,
                          rounded + tile.column, stride, depth);
        else
          tile.accumulate(l.buffer<const float>(MULTIPLY_TILES_A) + tile.row * p.k, p.k, 1, b + tile.column, stride,
                          p.k);
        tile.scale_rows(l.buffer<const float>(MULTIPLY_TILES_FACTORS));
        tile.each([&](size_t row, size_t column, vf32 sum) {
          const size_t at = row * stride + column;
          store(c + at, sum);
          store(written + at, load(written + at) + splat(1.0f));
        });
      });
}

template <typename W, typename X>
void dot_in_load_order(const Launch& l) {
  const size_t n = l.args<DotInLoadOrderParams>().n;
  const auto* w = l.buffer<const W>(DOT_IN_LOAD_ORDER_W);
  auto* ordered = l.buffer<float>(DOT_IN_LOAD_ORDER_ORDERED);
  to_load_order<W>(l.buffer<const X>(DOT_IN_LOAD_ORDER_X), n, ordered);
  vf32 sum = {};
  for (size_t i = 0; i < n; i += 2 * kLanes) {
    vf32 a, b;
    if (n - i >= 2 * kLanes)
      load_two(w + i, a, b);
    else
      load_two_partial(w + i, int(n - i), a, b);
    sum = fma(a, load(ordered + i), sum);
    sum = fma(b, load(ordered + i + kLanes), sum);
  }
  *l.buffer<float>(DOT_IN_LOAD_ORDER_DOT) = reduce_add(sum);
  from_load_order<W>(ordered, n, l.buffer<float>(DOT_IN_LOAD_ORDER_BACK));
}

void lane_sums(const Launch& l) {
  const auto* x = l.buffer<const float>(LANE_SUMS_X);
  const auto* bytes = l.buffer<const uint8_t>(LANE_SUMS_BYTES);
  *l.buffer<uint32_t>(LANE_SUMS_LANES) = kLanes;
  vf32 rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = load(x + i * 16);
  for (int i = 0; i < kLanes; ++i) {
    l.buffer<float>(LANE_SUMS_ONE)[i] = reduce_add(rows[i]);
    l.buffer<float>(LANE_SUMS_MOST)[i] = reduce_max(rows[i]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    const vf32x4 sums = reduce_add4(rows + i);
    memcpy(l.buffer<float>(LANE_SUMS_FOUR) + i, &sums, sizeof sums);
  }
  store(l.buffer<float>(LANE_SUMS_ALL), reduce_add_all(rows));
  vu32 a, b;
  memcpy(&a, bytes, sizeof a);
  memcpy(&b, bytes + 64, sizeof b);
  const vi32 dots = dot_int8x4(splat_i32(1 << 20), a, b);
  memcpy(l.buffer<int32_t>(LANE_SUMS_DOTS), &dots, sizeof dots);
}

}  // namespace

MLXTS_KERNEL(transpose_matrix_f32, transpose_matrix)
MLXTS_KERNEL(multiply_panels_f32, multiply_panels<float, float>)
MLXTS_KERNEL(multiply_panels_f16, multiply_panels<float, f16>)
MLXTS_KERNEL(multiply_panels_bf16, multiply_panels<float, bf16>)
MLXTS_KERNEL(multiply_panels_bf16x2, multiply_panels<bf16x2, bf16>)
MLXTS_KERNEL(multiply_tiles_f32, multiply_tiles<false>)
MLXTS_KERNEL(multiply_tiles_bf16x2, multiply_tiles<true>)
MLXTS_KERNEL(dot_in_load_order_f32_f32, dot_in_load_order<float, float>)
MLXTS_KERNEL(dot_in_load_order_f32_bf16, dot_in_load_order<float, bf16>)
MLXTS_KERNEL(dot_in_load_order_f16_bf16, dot_in_load_order<f16, bf16>)
MLXTS_KERNEL(dot_in_load_order_bf16_f32, dot_in_load_order<bf16, float>)
MLXTS_KERNEL(dot_in_load_order_bf16_f16, dot_in_load_order<bf16, f16>)
MLXTS_KERNEL(dot_in_load_order_bf16_bf16, dot_in_load_order<bf16, bf16>)
MLXTS_KERNEL(lane_sums_f32, lane_sums)
