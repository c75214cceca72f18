#include "../kernels/tile_roles.params.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint M = TILE_ROLES_M, N = TILE_ROLES_N, K = TILE_ROLES_K, kLast = TILE_ROLES_LAST;

// A whole matrix [rows, columns] into threadgroup memory.
template <typename T, uint Rows, uint Columns>
METAL_FUNC void bring(device const T* from, threadgroup T* to, uint lane) {
  TileCopy<T, T, Rows, Columns, 32> copy;
  copy.start(to, from, Columns, Rows, Columns, lane);
  copy.finish(to, lane);
}

// A change on the way: every other piece of four is doubled.
struct Checkered {
  METAL_FUNC float4 operator()(uint row, uint column, float4 v) const thread {
    return v * float(1 + (row + column / 4) % 2);
  }
};

template <typename T, bool Transposed>
METAL_FUNC void load_operands(thread TileLeft<T, M, K>& left, thread TileRight<T, K, N>& right, device const T* a,
                              device const T* b, threadgroup T* a_tile, threadgroup T* b_tile, uint lane) {
  bring<T, Transposed ? K : M, Transposed ? M : K>(a, a_tile, lane);
  bring<T, Transposed ? N : K, Transposed ? K : N>(b, b_tile, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (Transposed) {
    load_transposed(left, a_tile, tile_stride<T>(M));
    load_transposed(right, b_tile, tile_stride<T>(K));
  } else {
    load(left, a_tile, tile_stride<T>(K));
    load(right, b_tile, tile_stride<T>(N));
  }
}

// The largest element and the sum of each row.
METAL_FUNC void store_rows(thread TileSum<M, N>& sum, device float* rows, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    float most = -INFINITY, total = 0.0f;
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      most = max(most, max(sum.at(r, c, 0), sum.at(r, c, 1)));
      total += sum.at(r, c, 0) + sum.at(r, c, 1);
    }
    most = row_max(most);
    total = row_sum(total);
    if (matrix_column(lane) != 0) continue;
    rows[8 * r + matrix_row(lane)] = most;
    rows[M + 8 * r + matrix_row(lane)] = total;
  }
}

// The sum of each row of the left operand, as the third of `rows`, and with every other element doubled, as the fourth.
template <typename T>
METAL_FUNC void store_left_rows(thread TileLeft<T, M, K>& left, device float* rows, uint lane) {
  RowSums<T, M> sums;
  clear(sums);
  add_row_sums(sums, left);
  const TileSum<M, K> elements = as_sum(left);
  for (uint r = 0; r < M / 8; ++r) {
    float doubled = 0.0f;
    for (uint c = 0; c < K / 8; ++c) doubled += elements.at(r, c, 0) + 2.0f * elements.at(r, c, 1);
    const float total = sums.total(r);
    doubled = row_sum(doubled);
    if (matrix_column(lane) != 0) continue;
    rows[2 * M + 8 * r + matrix_row(lane)] = total;
    rows[3 * M + 8 * r + matrix_row(lane)] = doubled;
  }
}

template <uint Rows, uint Columns>
METAL_FUNC void store(thread TileSum<Rows, Columns>& sum, device float* to, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e)
          to[(8 * r + matrix_row(lane)) * Columns + 8 * c + matrix_column(lane) + e] = sum.at(r, c, e);
    }
  }
}

template <typename T, bool Transposed>
kernel void tile_roles(device const T* a [[buffer(TILE_ROLES_A)]], device const T* b [[buffer(TILE_ROLES_B)]],
                       device const T* c [[buffer(TILE_ROLES_C)]],
                       device const float* factors [[buffer(TILE_ROLES_FACTORS)]],
                       device float* sums [[buffer(TILE_ROLES_SUMS)]], device float* rows [[buffer(TILE_ROLES_ROWS)]],
                       device float* out [[buffer(TILE_ROLES_OUT)]],
                       constant TileRolesParams& p [[buffer(TILE_ROLES_PARAMS)]],
                       threadgroup uchar* memory [[threadgroup(0)]], uint lane [[thread_index_in_simdgroup]]) {
  const TileRolesScratch scratch = scratch_of(memory, p);
  threadgroup T* c_tile = (threadgroup T*)scratch.c;
  TileCopy<T, T, N, kLast, 32> copy;
  copy.start(c_tile, c, kLast, N, kLast, lane);
  copy.finish(c_tile, lane, Checkered());
  TileLeft<T, M, K> left;
  TileRight<T, K, N> right;
  load_operands<T, Transposed>(left, right, a, b, (threadgroup T*)scratch.a, (threadgroup T*)scratch.b, lane);
  TileSum<M, N> sum;
  fill(sum, 0.0f);
  multiply_add(sum, left, right);
  float row_factors[M / 8];
  for (uint r = 0; r < M / 8; ++r) row_factors[r] = factors[8 * r + matrix_row(lane)];
  scale_rows(sum, row_factors);
  // By way of the tile, of which the operands have been loaded.
  simdgroup_barrier(mem_flags::mem_threadgroup);
  constexpr uint kStride = tile_stride<float>(N);
  threadgroup float* tile = scratch.b;
  store(sum, tile, kStride, lane);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  store_tile<M, N, 32>(tile, sums, N, M, N, lane);
  TileSum<M, N> again;
  load(again, tile, kStride, lane);
  store_rows(again, rows, lane);
  store_left_rows(left, rows, lane);

  TileSum<M, kLast> product;
  fill(product, 0.0f);
  TileLeft<T, M, N> rounded = as_left<T>(sum);
  scale_rows(rounded, row_factors);
  MLXTS_UNROLL for (uint k = 0; k < N / 16; ++k) {
    TileRight<T, 16, kLast> part;
    load(part, c_tile + k * 16 * tile_stride<T>(kLast), tile_stride<T>(kLast));
    const TileLeft<T, M, 16> columns = columns_of(rounded, k);
    multiply_add(product, columns, part);
  }
  store(product, out, lane);
}

#define TILE_ROLES(name, T)                                                                                  \
  template [[host_name("tile_roles_" name)]] [[kernel]] decltype(tile_roles<T, false>) tile_roles<T, false>; \
  template [[host_name("tile_roles_" name "_transposed")]] [[kernel]] decltype(tile_roles<T, true>) tile_roles<T, true>;
TILE_ROLES("f32", float)
TILE_ROLES("f16", half)
TILE_ROLES("bf16", bfloat)
