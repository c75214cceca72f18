// Matrix products of simdgroups. A threadgroup brings tiles of both matrices into threadgroup memory (TileCopy); each
// simdgroup loads parts of them as operands (TileLeft, TileRight) and adds their products to sums that it keeps in
// registers (TileSum). Kernels name these roles only: which lane holds what of an operand, and how far rows of a tile
// lie apart, stands here alone, so that another header with the same names may serve a GPU with other matrix
// instructions. M, N and K are multiples of 16. Products of operands in f16 and bf16 are exact; all sums are f32.
#pragma once
#include "metal_kernel.h"
#include "metal_matrix.h"
#include "metal_tile_parts.h"

namespace mlxts {

// Elements from one row of a tile in threadgroup memory to the next: the padding puts the rows of a block into
// different banks. A tile begins at a multiple of 16 bytes, and so does each row.
template <typename E>
constexpr uint tile_stride(uint columns) {
  return columns + 16 / sizeof(E);
}

// Sums [M, N] of a simdgroup, in 8 × 8 blocks. A lane has two neighbors of a row in each block: at(r, c, e) is the
// element in row 8 r + matrix_row(lane) and column 8 c + matrix_column(lane) + e, for e = 0 and 1.
template <uint M, uint N>
struct TileSum {
  static_assert(M % 16 == 0 && N % 16 == 0, "tiles have multiples of 16 rows and columns");
  metal::simdgroup_float8x8 blocks[M / 8][N / 8];

  METAL_FUNC thread float& at(uint r, uint c, uint e) thread {
    return ((thread float*)&blocks[r][c].thread_elements())[e];
  }
  METAL_FUNC float at(uint r, uint c, uint e) const thread {
    return ((thread TileSum*)this)->at(r, c, e);  // blocks give their elements only where they may be changed
  }
};

template <uint M, uint N>
METAL_FUNC void fill(thread TileSum<M, N>& sum, float value) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) sum.blocks[r][c] =
        metal::make_filled_simdgroup_matrix<float, 8, 8>(value);
  }
}

// Sums from a tile in threadgroup memory, or rounded into one, rows `stride` apart: a lane's own elements.
template <typename E, uint M, uint N>
METAL_FUNC void load(thread TileSum<M, N>& sum, threadgroup const E* from, uint stride, uint lane) {
  from += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      threadgroup const metal::vec<E, 2>& two = *(threadgroup const metal::vec<E, 2>*)(from + (r * stride + c) * 8);
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sum.at(r, c, e) = float(two[e]);
    }
  }
}
template <typename E, uint M, uint N>
METAL_FUNC void store(thread const TileSum<M, N>& sum, threadgroup E* to, uint stride, uint lane) {
  to += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      threadgroup metal::vec<E, 2>& two = *(threadgroup metal::vec<E, 2>*)(to + (r * stride + c) * 8);
      two = metal::vec<E, 2>(E(sum.at(r, c, 0)), E(sum.at(r, c, 1)));
    }
  }
}

// Row 8 r + matrix_row(lane) of the sums times factors[r].
template <uint M, uint N>
METAL_FUNC void scale_rows(thread TileSum<M, N>& sum, thread const float (&factors)[M / 8]) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) sum.blocks[r][c].thread_elements() *= factors[r];
  }
}

// The largest of a lane's `value`, or their sum, over the four lanes that hold a row.
METAL_FUNC float row_max(float value) {
  value = metal::max(value, metal::simd_shuffle_xor(value, kRowLane));
  return metal::max(value, metal::simd_shuffle_xor(value, kRowLanes));
}
METAL_FUNC float row_sum(float value) {
  value += metal::simd_shuffle_xor(value, kRowLane);
  return value + metal::simd_shuffle_xor(value, kRowLanes);
}

// The operands of a product [M, K] · [K, N].
template <typename E, uint M, uint K>
struct TileLeft {
  metal::simdgroup_matrix<E, 8, 8> blocks[M / 8][K / 8];
};
template <typename E, uint K, uint N>
struct TileRight {
  metal::simdgroup_matrix<E, 8, 8> blocks[K / 8][N / 8];
};

// An operand from threadgroup memory whose rows lie `stride` apart; load_transposed takes one that is stored [K, M] or
// [N, K].
#define MLXTS_TILE_LOAD(Operand, name, offset, transposed)                                                        \
  template <typename E, uint Rows, uint Columns>                                                                  \
  METAL_FUNC void name(thread Operand<E, Rows, Columns>& operand, threadgroup const E* from, uint stride) {       \
    static_assert(Rows % 16 == 0 && Columns % 16 == 0, "tiles have multiples of 16 rows and columns");            \
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {                                                            \
      MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c)                                                         \
          metal::simdgroup_load(operand.blocks[r][c], from + (offset) * 8, stride, metal::ulong2(0), transposed); \
    }                                                                                                             \
  }
MLXTS_TILE_LOAD(TileLeft, load, r* stride + c, false)
MLXTS_TILE_LOAD(TileLeft, load_transposed, c* stride + r, true)
MLXTS_TILE_LOAD(TileRight, load, r* stride + c, false)
MLXTS_TILE_LOAD(TileRight, load_transposed, c* stride + r, true)
#undef MLXTS_TILE_LOAD

// Sums rounded to E as the left operand of another product, without a way through memory.
template <typename E, uint M, uint K>
METAL_FUNC TileLeft<E, M, K> as_left(thread const TileSum<M, K>& sum) {
  TileLeft<E, M, K> left;
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) left.blocks[r][c].thread_elements()[e] = E(sum.at(r, c, e));
    }
  }
  return left;
}

// The elements of a left operand as sums again.
template <typename E, uint M, uint K>
METAL_FUNC TileSum<M, K> as_sum(thread TileLeft<E, M, K>& left) {
  TileSum<M, K> sum;
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sum.at(r, c, e) = float(left.blocks[r][c].thread_elements()[e]);
    }
  }
  return sum;
}

// Columns 16 k … 16 k + 15 of a left operand.
template <typename E, uint M, uint K>
METAL_FUNC TileLeft<E, M, 16> columns_of(thread const TileLeft<E, M, K>& left, uint k) {
  TileLeft<E, M, 16> part;
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < 2; ++c) part.blocks[r][c] = left.blocks[r][2 * k + c];
  }
  return part;
}

// Row 8 r + matrix_row(lane) of a left operand times factors[r], rounded to E.
template <typename E, uint M, uint K>
METAL_FUNC void scale_rows(thread TileLeft<E, M, K>& left, thread const float (&factors)[M / 8]) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        thread E& element = ((thread E*)&left.blocks[r][k].thread_elements())[e];
        element = E(float(element) * factors[r]);
      }
    }
  }
}

// Adds this lane's part of the sum of row 8 r + matrix_row(lane) of a left operand to sums[r]; row_sum(sums[r]) is
// the sum.
template <typename E, uint M, uint K>
METAL_FUNC void add_row_sums(thread float (&sums)[M / 8], thread TileLeft<E, M, K>& left) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sums[r] += float(left.blocks[r][k].thread_elements()[e]);
    }
  }
}

// Sums over the rows of left operands, which a GPU may form as it likes: total(r) is that of row
// 8 r + matrix_row(lane).
template <typename E, uint M>
struct RowSums {
  float parts[M / 8];

  METAL_FUNC float total(uint r) const thread { return row_sum(parts[r]); }
};

template <typename E, uint M>
METAL_FUNC void clear(thread RowSums<E, M>& sums) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) sums.parts[r] = 0.0f;
}

template <typename E, uint M, uint K>
METAL_FUNC void add_row_sums(thread RowSums<E, M>& sums, thread TileLeft<E, M, K>& left) {
  add_row_sums(sums.parts, left);
}

// sum += left · right, in the columns of the sum from `column` on, a multiple of 16. An operand in f32 keeps its
// digits, also beside one in f16 or bf16.
template <typename L, typename R, uint M, uint Columns, uint N, uint K>
METAL_FUNC void multiply_add_columns(thread TileSum<M, Columns>& sum, uint column, thread const TileLeft<L, M, K>& left,
                                     thread const TileRight<R, K, N>& right) {
  MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
    MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
      MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
        thread metal::simdgroup_float8x8& block = sum.blocks[r][column / 8 + c];
        metal::simdgroup_multiply_accumulate(block, left.blocks[r][k], right.blocks[k][c], block);
      }
    }
  }
}

// sum += left · right
template <typename L, typename R, uint M, uint N, uint K>
METAL_FUNC void multiply_add(thread TileSum<M, N>& sum, thread const TileLeft<L, M, K>& left,
                             thread const TileRight<R, K, N>& right) {
  multiply_add_columns(sum, 0, left, right);
}

// The products of a tile on their way into longer sums, in the columns from the first on; after finish() they are there.
template <typename E, uint M, uint Columns, uint N>
struct TileProducts {
  thread TileSum<M, Columns>& sum;

  METAL_FUNC explicit TileProducts(thread TileSum<M, Columns>& to) : sum(to) {}
  METAL_FUNC void add(thread const TileLeft<E, M, 16>& left, thread const TileRight<E, 16, N>& right) thread {
    multiply_add_columns(sum, 0, left, right);
  }
  METAL_FUNC void finish() thread {}
};

// Rounds the sums of a part to rows of `n` elements, of which rows_at(row) is the one for a row of the threadgroup's
// outputs and `rows` are wanted, with added(column) added to those of a column; the outputs of the threadgroup begin at
// column n0.
template <typename O, uint M, uint N, typename RowsAt, typename Added>
METAL_FUNC void store_rows(thread TileSum<M, N>& sum, ProductPart part, RowsAt rows_at, uint rows, uint n0, uint n,
                           uint lane, Added added) {
  MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint column = n0 + part.column + 8 * c + matrix_column(lane) + e;
      if (8 * c >= part.columns || column >= n) continue;
      const float more = added(column);
      MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
        const uint row = part.row + 8 * r + matrix_row(lane);
        if (row < rows) rows_at(row)[column] = O(sum.at(r, c, e) + more);
      }
    }
  }
}

// The same to neighboring rows, from row m0 of `out` [m, n] on.
template <typename O, uint M, uint N, typename Added = NothingAdded>
METAL_FUNC void store(thread TileSum<M, N>& sum, ProductPart part, device O* out, uint m0, uint m, uint n0, uint n,
                      uint lane, Added added = Added()) {
  store_rows<O>(sum, part, EvenRows<O>{out + ulong(m0) * n, n}, m - m0, n0, n, lane, added);
}

// Neighbors in device memory, as many at a time as a GPU can; the compiler combines the loads.
template <typename T, uint Count>
METAL_FUNC void load(thread T (&neighbors)[Count], device const T* from) {
  MLXTS_UNROLL for (uint i = 0; i < Count; ++i) neighbors[i] = from[i];
}

// A tile [Rows, Columns] on its way from device memory, where it has dtype T, to threadgroup memory, where it has dtype
// E and rows tile_stride<E>(Columns) apart. All `Threads` threads start it, multiply another tile meanwhile, and finish
// it; after the next barrier it is there. A tile must not be finished where others still read.
template <typename T, typename E, uint Rows, uint Columns, uint Threads>
struct TileCopy {
  static constant constexpr uint kPerRow = Columns / 4, kStep = Threads / kPerRow;
  static constant constexpr uint kOwn = (Rows + kStep - 1) / kStep;
  static_assert(Threads % kPerRow == 0, "all pieces of a thread have the same columns");
  metal::vec<T, 4> held[kOwn];  // the pieces of four elements that this thread brings, from every kStep-th row

  // The first `rows` rows and `columns` columns from `from` on, rows `stride` apart; zeros for the others.
  METAL_FUNC void start(device const T* from, ulong stride, uint rows, uint columns, uint index) thread {
    start_rows(EvenRows<const T>{from, stride}, 0, rows, columns, index);
  }
  // The same of rows anywhere in device memory: row r of the tile begins at element `begin` of rows_at(r).
  template <typename RowsAt>
  METAL_FUNC void start_rows(RowsAt rows_at, uint begin, uint rows, uint columns, uint index) thread {
    const uint first = index / kPerRow, column = index % kPerRow * 4;
    const uint left = column < columns ? columns - column : 0;
    rows = metal::min(rows, Rows);
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
      held[i] = metal::vec<T, 4>(T(0.0f));
      if (first + i * kStep >= rows || left == 0) continue;
      device const T* from = rows_at(first + i * kStep) + begin + column;
      held[i] = left >= 4
                    ? metal::vec<T, 4>(from[0], from[1], from[2], from[3])
                    : metal::vec<T, 4>(from[0], left > 1 ? from[1] : T(0.0f), left > 2 ? from[2] : T(0.0f), T(0.0f));
    }
  }
  // The same towards the tile `to`, which nobody else reads or writes until the barrier behind `finish(to, index)`: a
  // GPU that copies without registers may write it from now on, and the simulator's check mode does.
  METAL_FUNC void start(threadgroup E* to, device const T* from, ulong stride, uint rows, uint columns,
                        uint index) thread {
    start(from, stride, rows, columns, index);
    spoil(to, index);
  }
  template <typename RowsAt>
  METAL_FUNC void start_rows(threadgroup E* to, RowsAt rows_at, uint begin, uint rows, uint columns,
                             uint index) thread {
    start_rows(rows_at, begin, rows, columns, index);
    spoil(to, index);
  }
  METAL_FUNC void finish(threadgroup E* to, uint index) const thread {
    const uint first = index / kPerRow, column = index % kPerRow * 4;
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) store(to, first + i * kStep, column, piece(i));
  }
  // The same, but four neighbors from (row, column) on become change(row, column, neighbors), a float4.
  template <typename Change>
  METAL_FUNC void finish(threadgroup E* to, uint index, Change change) const thread {
    const uint first = index / kPerRow, column = index % kPerRow * 4;
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i)
        store(to, first + i * kStep, column, change(first + i * kStep, column, piece(i)));
  }

 private:
  METAL_FUNC float4 piece(uint i) const thread {
    return float4(float(held[i][0]), float(held[i][1]), float(held[i][2]), float(held[i][3]));
  }
  METAL_FUNC static void store(threadgroup E* to, uint row, uint column, float4 v) {
    if (Rows % kStep != 0 && row >= Rows) return;
    threadgroup metal::vec<E, 4>& four = *(threadgroup metal::vec<E, 4>*)(to + row * tile_stride<E>(Columns) + column);
    four = metal::vec<E, 4>(E(v.x), E(v.y), E(v.z), E(v.w));
  }
  // Whoever still reads the tile, or reads it before it is finished, is found.
  METAL_FUNC static void spoil(threadgroup E* to, uint index) {
#ifdef __METAL_SIM_CHECK__
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) store(to, index / kPerRow + i * kStep, index % kPerRow * 4, float4(NAN));
#else
    (void)to, (void)index;
#endif
  }
};

// The way back: the first `rows` rows and `columns` columns of a tile in threadgroup memory, as TileCopy leaves it, to
// device memory, rounded to T, by all `Threads` threads.
template <uint Rows, uint Columns, uint Threads, typename E, typename T>
METAL_FUNC void store_tile(threadgroup const E* from, device T* to, ulong stride, uint rows, uint columns, uint index) {
  constexpr uint kPerRow = Columns / 4;
  MLXTS_UNROLL for (uint first = 0; first < Rows * kPerRow; first += Threads) {
    const uint row = (first + index) / kPerRow, column = (first + index) % kPerRow * 4;
    if (row >= metal::min(rows, Rows) || column >= columns) continue;
    threadgroup const metal::vec<E, 4>& four =
        *(threadgroup const metal::vec<E, 4>*)(from + row * tile_stride<E>(Columns) + column);
    device T* at = to + row * stride + column;
    if (columns - column >= 4) {
      store4(at, float4(float(four.x), float(four.y), float(four.z), float(four.w)));
    } else {
      for (uint e = 0; e < columns - column; ++e) at[e] = T(float(four[e]));
    }
  }
}

}  // namespace mlxts
