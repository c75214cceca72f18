// Operands of the products that the fused chunk kernel makes, as vectors take them: f32, or where the processor
// multiplies bf16 (kDots) and both operands are of bf16, that. `Own` is what an operand's numbers are rounded to,
// `Other` what the other one's are; the f32 arrays that they come from keep their place while a product needs them.
#pragma once
#include "chunk.h"

namespace mlxts {

// Element (r, k) of a left operand, and row k of a right one; those of bf16 are bf16x2 along k.
template <typename E>
struct LeftRows {
  const E* at;
  size_t row_stride, k_stride;
};
template <typename E>
struct RightRows {
  const E* at;
  size_t stride;
};

MLXTS_INLINE bf16x2* as_bf16x2(bf16* array) { return reinterpret_cast<bf16x2*>(array); }

// Rows of whole vectors, of numbers that are bf16 already, one after the other.
MLXTS_INLINE void pack_rows(const float* from, size_t rows, size_t columns, bf16* to) {
  for (size_t i = 0; i < rows * columns; i += kLanes) {
    const vu16 bits = narrow_u32(reinterpret_cast<vu32>(load(from + i)) >> 16);
    memcpy(to + i, &bits, sizeof bits);
  }
}
// The same, rows 2i and 2i + 1 as row i; a missing last row counts as zeros.
MLXTS_INLINE void pack_rows_bf16x2(const float* from, size_t stride, size_t rows, bf16x2* to) {
  for (size_t r = 0; r < rows; r += 2)
    for (size_t c = 0; c < stride; c += kLanes) {
      const float* at = from + r * stride + c;
      const vu32 first = reinterpret_cast<vu32>(load(at)) >> 16;
      const vu32 second = r + 1 < rows ? reinterpret_cast<vu32>(load(at + stride)) : vu32{};
      store_bf16x2(to + r / 2 * stride + c, first | second);
    }
}

template <bool kDots>
struct VectorProducts {
  struct Session {};                        // of a call of a kernel
  static constexpr size_t kLinesAhead = 8;  // asked for with each part of a product
  template <typename Own, typename Other>
  static constexpr bool kPacks = kDots && std::is_same_v<Own, bf16> && std::is_same_v<Other, bf16>;

  // Rows of whole vectors along k.
  template <typename Own, typename Other>
  static auto left(const float* from, size_t stride, size_t rows, size_t, bf16* memory) {
    if constexpr (kPacks<Own, Other>) {
      pack_rows(from, rows, stride, memory);
      return LeftRows<bf16>{memory, stride, 2};
    } else {
      return LeftRows<float>{from, stride, 1};
    }
  }
  // Columns: row r of the operand is column r of the `depth` rows, which are also transposed for those who take that.
  template <typename Own, typename Other>
  static auto left_columns(const float* from, size_t stride, size_t depth, size_t, size_t, const float*, bf16* memory) {
    if constexpr (kPacks<Own, Other>) {
      pack_rows_bf16x2(from, stride, depth, as_bf16x2(memory));
      return LeftRows<bf16>{memory, 2, 2 * stride};
    } else {
      return LeftRows<float>{from, 1, stride};
    }
  }
  // `depth` rows of whole vectors.
  template <typename Own, typename Other>
  static auto right(const float* from, size_t stride, size_t depth, bf16* memory) {
    if constexpr (kPacks<Own, Other>) {
      pack_rows_bf16x2(from, stride, depth, as_bf16x2(memory));
      return RightRows<bf16x2>{as_bf16x2(memory), stride};
    } else {
      return RightRows<float>{from, stride};
    }
  }
  // The transpose of `rows` rows, with zeros up to `length` columns; both arrays are memory for it.
  template <typename Own, typename Other>
  static auto right_columns(const float* from, size_t stride, size_t rows, size_t depth, size_t length,
                            float* transposed, bf16* memory) {
    if constexpr (kPacks<Own, Other>) {
      // Two neighbors of a row are transposed as one element.
      bf16* packed = reinterpret_cast<bf16*>(transposed);
      pack_rows(from, rows, stride, packed);
      transpose_padded({reinterpret_cast<const float*>(packed), stride / 2}, rows, stride / 2,
                       reinterpret_cast<float*>(memory), length);
      return RightRows<bf16x2>{as_bf16x2(memory), length};
    } else {
      transpose_padded({from, stride}, rows, depth, transposed, length);
      return RightRows<float>{transposed, length};
    }
  }
  static void transpose_columns(const float*, size_t, size_t, size_t, size_t, float*) {}
  // A panel of the state [depth, stride], as it is and rounded to T, which `rounded` and `memory` are for.
  template <typename T>
  static auto state(const float* panel, size_t stride, size_t, bf16*) {
    return RightRows<float>{panel, stride};
  }
  template <typename T, typename Other>
  static auto rounded_state(const float* panel, size_t stride, size_t depth, float* rounded, bf16* memory) {
    if constexpr (kPacks<T, Other>) {
      narrow_rows_bf16x2(panel, stride, depth, stride, as_bf16x2(memory), stride);
      return RightRows<bf16x2>{as_bf16x2(memory), stride};
    } else if constexpr (std::is_same_v<T, float>) {
      return RightRows<float>{panel, stride};
    } else {
      for (size_t i = 0; i < depth * stride; i += kLanes) store(rounded + i, round_to<T>(load(panel + i)));
      return RightRows<float>{rounded, stride};
    }
  }

  template <typename Columns, typename Body>
  static void for_products(size_t rows, Columns columns, Body body) {
    for_high_tiles(rows, columns, body);
  }
  // tile += left · right over `depth` elements along k.
  template <typename Tile>
  static MLXTS_INLINE void multiply(Tile& tile, LeftRows<float> left, RightRows<float> right, size_t depth) {
    tile.accumulate(left.at + tile.row * left.row_stride, left.row_stride, left.k_stride, right.at + tile.column,
                    right.stride, depth);
  }
  template <typename Tile>
  static MLXTS_INLINE void multiply(Tile& tile, LeftRows<bf16> left, RightRows<bf16x2> right, size_t depth) {
    tile.accumulate(left.at + tile.row * left.row_stride, left.row_stride, left.k_stride, right.at + tile.column,
                    right.stride, (depth + 1) / 2);
  }
  // body(row, column, sum, other sum) for every vector of two alike.
  template <typename Tile, typename Body>
  static MLXTS_INLINE void each_of_both(Tile& one, Tile& two, Body body) {
    MLXTS_UNROLL
    for (int r = 0; r < Tile::rows; ++r) {
      MLXTS_UNROLL
      for (int v = 0; v < Tile::vectors; ++v) body(one.row + r, one.column + v * kLanes, one.sum[r][v], two.sum[r][v]);
    }
  }
  // Two products with one right operand.
  template <typename Tile, typename Left, typename Right>
  static MLXTS_INLINE void multiply_both(Tile& one, Tile& two, Left left_of_one, Left left_of_two, Right right,
                                         size_t depth) {
    constexpr int kRegisters = kTileVectors == 4 ? 32 : 16;
    constexpr bool kFits = Tile::vectors <= 2 && (2 * Tile::rows + 1) * Tile::vectors < kRegisters;
    if constexpr (kFits && std::is_same_v<Left, LeftRows<float>>) {
      const float *first = left_of_one.at + one.row * left_of_one.row_stride,
                  *second = left_of_two.at + one.row * left_of_two.row_stride, *columns = right.at + one.column;
      for (size_t k = 0; k < depth; ++k) {
        vf32 column[Tile::vectors];
        MLXTS_UNROLL
        for (int v = 0; v < Tile::vectors; ++v) column[v] = load(columns + k * right.stride + v * kLanes);
        one.add(first + k, left_of_one.row_stride, column);
        two.add(second + k, left_of_two.row_stride, column);
      }
    } else {
      multiply(one, left_of_one, right, depth);
      multiply(two, left_of_two, right, depth);
    }
  }
};

}  // namespace mlxts
