// metal_tile.h in a CUDA translation: the same roles on mma.sync, ldmatrix and copies without registers. Blocks of 8 ×
// 8 are the quarters of the instructions' operands, so at(r, c, e) means here what it means there. Operands of 16 bits
// are pairs of neighbors in the contracted index; sums of them are made in the matrix unit. f32 goes through it in
// parts that it holds exactly, and its sums are made outside, where they are rounded to nearest.
#pragma once
#include "cuda_matrix.h"
#include "metal_tile_parts.h"

namespace mlxts {

// Elements from one row of a tile in threadgroup memory to the next: eight rows of 16 bytes meet all banks.
template <typename E>
constexpr uint tile_stride(uint columns) {
  return columns + 16 / sizeof(E);
}

// Two neighbors in a register, and the matrix unit's product of such.
template <typename E>
struct Pairs;
template <>
struct Pairs<half> {
  METAL_FUNC static uint of(float low, float high) { return machine::f16_pair(low, high); }
  METAL_FUNC static float low(uint pair) { return machine::of_f16(ushort(pair)); }
  METAL_FUNC static float high(uint pair) { return machine::of_f16(ushort(pair >> 16)); }
  METAL_FUNC static void multiply_add(float (&d)[4], const uint (&a)[4], const uint (&b)[2]) {
    machine::mma_f16_k16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
  }
};
template <>
struct Pairs<bfloat> {
  METAL_FUNC static uint of(float low, float high) { return machine::bf16_pair(low, high); }
  METAL_FUNC static float low(uint pair) { return as_type<float>(pair << 16); }
  METAL_FUNC static float high(uint pair) { return as_type<float>(pair & 0xffff0000u); }
  METAL_FUNC static void multiply_add(float (&d)[4], const uint (&a)[4], const uint (&b)[2]) {
    machine::mma_bf16_k16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
  }
};

// Sums [M, N] of a simdgroup, in blocks of 16 × 8: two of 8 × 8, one above the other.
template <uint M, uint N>
struct TileSum {
  static_assert(M % 16 == 0 && N % 16 == 0, "tiles have multiples of 16 rows and columns");
  float blocks[M / 16][N / 8][4];

  METAL_FUNC thread float& at(uint r, uint c, uint e) thread { return blocks[r / 2][c][r % 2 * 2 + e]; }
  METAL_FUNC float at(uint r, uint c, uint e) const thread { return blocks[r / 2][c][r % 2 * 2 + e]; }
};

template <uint M, uint N>
METAL_FUNC void fill(thread TileSum<M, N>& sum, float value) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) sum.at(r, c, 0) = sum.at(r, c, 1) = value;
  }
}

// Sums from a tile in threadgroup memory, or rounded into one, rows `stride` apart: a lane's own elements.
template <typename E, uint M, uint N>
METAL_FUNC void load(thread TileSum<M, N>& sum, threadgroup const E* from, uint stride, uint lane) {
  from += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      const metal::vec<E, 2> two = *(threadgroup const metal::vec<E, 2>*)(from + (r * stride + c) * 8);
      sum.at(r, c, 0) = float(two.x);
      sum.at(r, c, 1) = float(two.y);
    }
  }
}
template <typename E, uint M, uint N>
METAL_FUNC void store(thread const TileSum<M, N>& sum, threadgroup E* to, uint stride, uint lane) {
  to += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      *(threadgroup metal::vec<E, 2>*)(to + (r * stride + c) * 8) =
          metal::vec<E, 2>(E(sum.at(r, c, 0)), E(sum.at(r, c, 1)));
    }
  }
}

// Row 8 r + matrix_row(lane) of the sums times factors[r].
template <uint M, uint N>
METAL_FUNC void scale_rows(thread TileSum<M, N>& sum, thread const float (&factors)[M / 8]) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sum.at(r, c, e) *= factors[r];
    }
  }
}

// The largest of a lane's `value`, or their sum, over the four lanes that hold a row: neighbors.
METAL_FUNC float row_max(float value) {
  value = metal::max(value, metal::simd_shuffle_xor(value, 1));
  return metal::max(value, metal::simd_shuffle_xor(value, 2));
}
METAL_FUNC float row_sum(float value) {
  value += metal::simd_shuffle_xor(value, 1);
  return value + metal::simd_shuffle_xor(value, 2);
}

// The operands of a product [M, K] · [K, N]: blocks of 16 × 16 and 16 × 8.
template <typename E, uint M, uint K>
struct TileLeft {
  static_assert(M % 16 == 0 && K % 16 == 0, "tiles have multiples of 16 rows and columns");
  uint blocks[M / 16][K / 16][4];

  METAL_FUNC uint pair(uint r, uint c) const { return blocks[r / 2][c / 2][r % 2 + c % 2 * 2]; }
  METAL_FUNC float at(uint r, uint c, uint e) const {
    return e == 0 ? Pairs<E>::low(pair(r, c)) : Pairs<E>::high(pair(r, c));
  }
  // The two neighbors of a row that this lane has in a block of 8 × 8.
  METAL_FUNC void set(uint r, uint c, float low, float high) {
    blocks[r / 2][c / 2][r % 2 + c % 2 * 2] = Pairs<E>::of(low, high);
  }
};
template <typename E, uint K, uint N>
struct TileRight {
  static_assert(K % 16 == 0 && N % 16 == 0, "tiles have multiples of 16 rows and columns");
  uint blocks[K / 16][N / 8][2];
};

// In f32 blocks of 16 × 8 and 8 × 8, with the contracted index in the order 0 2 4 6 1 3 5 7: a lane has neighbors.
template <uint M, uint K>
struct TileLeft<float, M, K> {
  float blocks[M / 16][K / 8][4];

  METAL_FUNC float at(uint r, uint c, uint e) const { return blocks[r / 2][c][r % 2 + e * 2]; }
  METAL_FUNC void set(uint r, uint c, float low, float high) {
    blocks[r / 2][c][r % 2] = low;
    blocks[r / 2][c][r % 2 + 2] = high;
  }
};
template <uint K, uint N>
struct TileRight<float, K, N> {
  float blocks[K / 8][N / 8][2];
};

// The row of 16 × 16 elements that this lane names where the four blocks of such are loaded: of a left operand, or of a
// right one that is stored [K, N]; transposed, of one that is stored [K, M] or [N, K].
template <typename E>
METAL_FUNC threadgroup const E* own_row(threadgroup const E* from, uint stride) {
  const uint lane = machine::lane();
  return from + (lane % 16 * stride + lane / 16 * 8);
}
template <typename E>
METAL_FUNC threadgroup const E* own_row_transposed(threadgroup const E* from, uint stride) {
  const uint lane = machine::lane();
  return from + ((lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}

// An operand from threadgroup memory whose rows lie `stride` apart; load_transposed takes one that is stored [K, M] or
// [N, K]. Rows of 16-bit elements begin at multiples of 16 bytes. load_own and load_own_transposed take the lane's own
// row, for callers that keep it.
template <typename E, uint M, uint K>
METAL_FUNC void load_own(thread TileLeft<E, M, K>& left, threadgroup const E* from, uint stride) {
  MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
    MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) {
      uint(&a)[4] = left.blocks[i][k];
      machine::load_matrices(a[0], a[1], a[2], a[3], from + (i * stride + k) * 16);
    }
  }
}
template <typename E, uint M, uint K>
METAL_FUNC void load(thread TileLeft<E, M, K>& left, threadgroup const E* from, uint stride) {
  load_own(left, own_row(from, stride), stride);
}
template <typename E, uint M, uint K>
METAL_FUNC void load_transposed(thread TileLeft<E, M, K>& left, threadgroup const E* from, uint stride) {
  from = own_row_transposed(from, stride);
  MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
    MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) {
      uint(&a)[4] = left.blocks[i][k];
      machine::load_matrices_transposed(a[0], a[1], a[2], a[3], from + (k * stride + i) * 16);
    }
  }
}
template <typename E, uint K, uint N>
METAL_FUNC void load_own(thread TileRight<E, K, N>& right, threadgroup const E* from, uint stride) {
  MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) {
    MLXTS_UNROLL for (uint j = 0; j < N / 8; j += 2) {
      uint(&b)[N / 8][2] = right.blocks[k];
      machine::load_matrices_transposed(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], from + k * stride * 16 + j * 8);
    }
  }
}
template <typename E, uint K, uint N>
METAL_FUNC void load(thread TileRight<E, K, N>& right, threadgroup const E* from, uint stride) {
  load_own(right, own_row(from, stride), stride);
}
template <typename E, uint K, uint N>
METAL_FUNC void load_own_transposed(thread TileRight<E, K, N>& right, threadgroup const E* from, uint stride) {
  MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) {
    MLXTS_UNROLL for (uint j = 0; j < N / 8; j += 2) {
      uint(&b)[N / 8][2] = right.blocks[k];
      machine::load_matrices(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], from + j * stride * 8 + k * 16);
    }
  }
}
template <typename E, uint K, uint N>
METAL_FUNC void load_transposed(thread TileRight<E, K, N>& right, threadgroup const E* from, uint stride) {
  load_own_transposed(right, own_row_transposed(from, stride), stride);
}

template <uint M, uint K>
METAL_FUNC void load(thread TileLeft<float, M, K>& left, threadgroup const float* from, uint stride) {
  const uint lane = machine::lane();
  from += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      const float2 two = *(threadgroup const float2*)(from + (r * stride + c) * 8);
      left.set(r, c, two.x, two.y);
    }
  }
}
template <uint M, uint K>
METAL_FUNC void load_transposed(thread TileLeft<float, M, K>& left, threadgroup const float* from, uint stride) {
  const uint lane = machine::lane();
  from += matrix_column(lane) * stride + matrix_row(lane);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      threadgroup const float* at = from + (c * stride + r) * 8;
      left.set(r, c, at[0], at[stride]);
    }
  }
}
template <uint K, uint N>
METAL_FUNC void load(thread TileRight<float, K, N>& right, threadgroup const float* from, uint stride) {
  const uint lane = machine::lane();
  from += matrix_column(lane) * stride + matrix_row(lane);
  MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
    MLXTS_UNROLL for (uint j = 0; j < N / 8; ++j) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) right.blocks[k][j][e] = from[(k * 8 + e) * stride + j * 8];
    }
  }
}
template <uint K, uint N>
METAL_FUNC void load_transposed(thread TileRight<float, K, N>& right, threadgroup const float* from, uint stride) {
  const uint lane = machine::lane();
  from += matrix_row(lane) * stride + matrix_column(lane);
  MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
    MLXTS_UNROLL for (uint j = 0; j < N / 8; ++j) {
      const float2 two = *(threadgroup const float2*)(from + (j * stride + k) * 8);
      right.blocks[k][j][0] = two.x;
      right.blocks[k][j][1] = two.y;
    }
  }
}

// Sums rounded to E as the left operand of another product, without a way through memory.
template <typename E, uint M, uint K>
METAL_FUNC TileLeft<E, M, K> as_left(thread const TileSum<M, K>& sum) {
  TileLeft<E, M, K> left;
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) left.set(r, c, sum.at(r, c, 0), sum.at(r, c, 1));
  }
  return left;
}

// The elements of a left operand as sums again.
template <typename E, uint M, uint K>
METAL_FUNC TileSum<M, K> as_sum(thread const TileLeft<E, M, K>& left) {
  TileSum<M, K> sum;
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sum.at(r, c, e) = left.at(r, c, e);
    }
  }
  return sum;
}

// Columns 16 k … 16 k + 15 of a left operand.
template <typename E, uint M, uint K>
METAL_FUNC TileLeft<E, M, 16> columns_of(thread const TileLeft<E, M, K>& left, uint k) {
  constexpr uint kBlocks = metal::is_same_v<E, float> ? 2 : 1;
  TileLeft<E, M, 16> part;
  MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
    MLXTS_UNROLL for (uint c = 0; c < kBlocks; ++c) {
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n) part.blocks[i][c][n] = left.blocks[i][kBlocks * k + c][n];
    }
  }
  return part;
}

// Row 8 r + matrix_row(lane) of a left operand times factors[r], rounded to E.
template <typename E, uint M, uint K>
METAL_FUNC void scale_rows(thread TileLeft<E, M, K>& left, thread const float (&factors)[M / 8]) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c)
        left.set(r, c, left.at(r, c, 0) * factors[r], left.at(r, c, 1) * factors[r]);
  }
}

// Adds this lane's part of the sum of row 8 r + matrix_row(lane) of a left operand to sums[r]; row_sum(sums[r]) is
// the sum.
template <typename E, uint M, uint K>
METAL_FUNC void add_row_sums(thread float (&sums)[M / 8], thread const TileLeft<E, M, K>& left) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < K / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sums[r] += left.at(r, c, e);
    }
  }
}

// Sums over the rows of left operands: total(r) is that of row 8 r + matrix_row(lane). Those of 16 bits are multiplied
// by a matrix of ones.
template <typename E, uint M>
struct RowSums {
  float blocks[M / 16][4];

  METAL_FUNC float total(uint r) const { return blocks[r / 2][r % 2 * 2]; }
};
template <uint M>
struct RowSums<float, M> {
  float parts[M / 8];

  METAL_FUNC float total(uint r) const { return row_sum(parts[r]); }
};

template <typename E, uint M>
METAL_FUNC void clear(thread RowSums<E, M>& sums) {
  MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) { MLXTS_UNROLL for (uint n = 0; n < 4; ++n) sums.blocks[i][n] = 0.0f; }
}
template <uint M>
METAL_FUNC void clear(thread RowSums<float, M>& sums) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) sums.parts[r] = 0.0f;
}

template <typename E, uint M, uint K>
METAL_FUNC void add_row_sums(thread RowSums<E, M>& sums, thread const TileLeft<E, M, K>& left) {
  const uint one = Pairs<E>::of(1.0f, 1.0f), ones[2] = {one, one};
  MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
    MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) Pairs<E>::multiply_add(sums.blocks[i], left.blocks[i][k], ones);
  }
}
template <uint M, uint K>
METAL_FUNC void add_row_sums(thread RowSums<float, M>& sums, thread const TileLeft<float, M, K>& left) {
  add_row_sums(sums.parts, left);
}

// An f32 as two numbers that the matrix unit holds: it is high + low / kRest. Scaled, the rest of a small number is
// kept.
struct Parts {
  static constexpr float kRest = 2048.0f;
  uint high, low;

  Parts() = default;
  METAL_FUNC explicit Parts(float x)
      : high(machine::tf32_of(x)), low(machine::tf32_of((x - as_type<float>(high)) * kRest)) {}
  // Of a product and the rests' products. Beside a number that is not finite there are none.
  METAL_FUNC static float sum(float product, float rests) {
    return metal::isfinite(rests) ? metal::fma(rests, 1.0f / kRest, product) : product;
  }
};

// The parts of columns 8 k … of a left operand, in a block of 16 rows; 16-bit floats have one.
template <typename E, uint M, uint K>
METAL_FUNC void parts_of(thread Parts (&parts)[4], thread const TileLeft<E, M, K>& left, uint i, uint k) {
  MLXTS_UNROLL for (uint n = 0; n < 4; ++n) parts[n].high = as_type<uint>(left.at(2 * i + n % 2, k, n / 2));
}
template <uint M, uint K>
METAL_FUNC void parts_of(thread Parts (&parts)[4], thread const TileLeft<float, M, K>& left, uint i, uint k) {
  MLXTS_UNROLL for (uint n = 0; n < 4; ++n) parts[n] = Parts(left.blocks[i][k][n]);
}

// The same of rows 8 k … of a right operand, in 8 columns. A lane has the pairs 2 j and 2 j + 1 of the contracted
// index.
template <typename E, uint K, uint N>
METAL_FUNC void parts_of(thread Parts (&parts)[2], thread const TileRight<E, K, N>& right, uint k, uint j) {
  const uint pair = right.blocks[k / 2][j][k % 2];
  parts[0].high = as_type<uint>(Pairs<E>::low(pair));
  parts[1].high = as_type<uint>(Pairs<E>::high(pair));
}
template <uint K, uint N>
METAL_FUNC void parts_of(thread Parts (&parts)[2], thread const TileRight<float, K, N>& right, uint k, uint j) {
  MLXTS_UNROLL for (uint n = 0; n < 2; ++n) parts[n] = Parts(right.blocks[k][j][n]);
}

// sum += left · right, in the columns of the sum from `column` on, a multiple of 16. An operand in f32 keeps its
// digits, also beside one in f16 or bf16: of products of parts, only that of two rests is left out.
template <typename L, typename R, uint M, uint Columns, uint N, uint K>
METAL_FUNC void multiply_add_columns(thread TileSum<M, Columns>& sum, uint column, thread const TileLeft<L, M, K>& left,
                                     thread const TileRight<R, K, N>& right) {
  constexpr bool kSplitLeft = metal::is_same_v<L, float>, kSplitRight = metal::is_same_v<R, float>;
  static_assert(kSplitLeft || kSplitRight, "16-bit operands have one dtype");
  MLXTS_UNROLL for (uint k = 0; k < K / 8; ++k) {
    Parts b[N / 8][2];
    MLXTS_UNROLL for (uint j = 0; j < N / 8; ++j) parts_of(b[j], right, k, j);
    MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
      Parts a[4];
      parts_of(a, left, i, k);
      MLXTS_UNROLL for (uint j = 0; j < N / 8; ++j) {
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f}, rests[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const Parts(&own)[2] = b[j];
        if (kSplitLeft) machine::mma_tf32_k8(rests, a[0].low, a[1].low, a[2].low, a[3].low, own[0].high, own[1].high);
        if (kSplitRight)
          machine::mma_tf32_k8(rests, a[0].high, a[1].high, a[2].high, a[3].high, own[0].low, own[1].low);
        machine::mma_tf32_k8(d, a[0].high, a[1].high, a[2].high, a[3].high, own[0].high, own[1].high);
        MLXTS_UNROLL for (uint n = 0; n < 4; ++n) sum.blocks[i][column / 8 + j][n] += Parts::sum(d[n], rests[n]);
      }
    }
  }
}
template <typename E, uint M, uint Columns, uint N, uint K>
METAL_FUNC void multiply_pairs(thread TileSum<M, Columns>& sum, uint column, thread const TileLeft<E, M, K>& left,
                               thread const TileRight<E, K, N>& right) {
  MLXTS_UNROLL for (uint k = 0; k < K / 16; ++k) {
    MLXTS_UNROLL for (uint i = 0; i < M / 16; ++i) {
      MLXTS_UNROLL for (uint j = 0; j < N / 8; ++j)
          Pairs<E>::multiply_add(sum.blocks[i][column / 8 + j], left.blocks[i][k], right.blocks[k][j]);
    }
  }
}
#define MLXTS_MULTIPLY_PAIRS(E)                                                                                        \
  template <uint M, uint Columns, uint N, uint K>                                                                      \
  METAL_FUNC void multiply_add_columns(thread TileSum<M, Columns>& sum, uint column,                                   \
                                       thread const TileLeft<E, M, K>& left, thread const TileRight<E, K, N>& right) { \
    multiply_pairs(sum, column, left, right);                                                                          \
  }
MLXTS_MULTIPLY_PAIRS(half)
MLXTS_MULTIPLY_PAIRS(bfloat)
#undef MLXTS_MULTIPLY_PAIRS

// sum += left · right
template <typename L, typename R, uint M, uint N, uint K>
METAL_FUNC void multiply_add(thread TileSum<M, N>& sum, thread const TileLeft<L, M, K>& left,
                             thread const TileRight<R, K, N>& right) {
  multiply_add_columns(sum, 0, left, right);
}

// The products of a tile on their way into longer sums, in the columns from the first on. Sums that the matrix unit
// makes are cut off, not rounded: over thousands of numbers f32 would lose digits.
template <typename E, uint M, uint Columns, uint N>
struct TileProducts {
  thread TileSum<M, Columns>& sum;
  TileSum<M, N> own;

  METAL_FUNC explicit TileProducts(thread TileSum<M, Columns>& to) : sum(to) { fill(own, 0.0f); }
  METAL_FUNC void add(thread const TileLeft<E, M, 16>& left, thread const TileRight<E, 16, N>& right) {
    multiply_add(own, left, right);
  }
  METAL_FUNC void finish() {
    MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
      MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sum.at(r, c, e) += own.at(r, c, e);
      }
    }
  }
};
template <uint M, uint Columns, uint N>
struct TileProducts<float, M, Columns, N> {
  thread TileSum<M, Columns>& sum;

  METAL_FUNC explicit TileProducts(thread TileSum<M, Columns>& to) : sum(to) {}
  METAL_FUNC void add(thread const TileLeft<float, M, 16>& left, thread const TileRight<float, 16, N>& right) {
    multiply_add_columns(sum, 0, left, right);
  }
  METAL_FUNC void finish() {}
};

// Neighbors in device memory, 16 bytes at a time where the address allows.
template <typename T, uint Count>
METAL_FUNC void load(thread T (&neighbors)[Count], device const T* from) {
  struct alignas(16) Piece {
    T of[16 / sizeof(T)];
  };
  constexpr uint kPiece = 16 / sizeof(T);
  if (Count % kPiece == 0 && (ulong(from) & 15) == 0) {
    MLXTS_UNROLL for (uint i = 0; i < Count; i += kPiece) {
      const Piece piece = *(device const Piece*)(from + i);
      MLXTS_UNROLL for (uint n = 0; n < kPiece; ++n) neighbors[(i + n) % Count] = piece.of[n];
    }
    return;
  }
  MLXTS_UNROLL for (uint i = 0; i < Count; ++i) neighbors[i] = from[i];
}

// Rounds the sums of a part to rows of `n` elements, of which rows_at(row) is the one for a row of the threadgroup's
// outputs and `rows` are wanted, with added(column) added to those of a column; the outputs of the threadgroup begin at
// column n0.
template <typename O, uint M, uint N, typename RowsAt, typename Added>
METAL_FUNC void store_rows(thread TileSum<M, N>& sum, ProductPart part, RowsAt rows_at, uint rows, uint n0, uint n,
                           uint lane, Added added) {
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    const uint row = part.row + 8 * r + matrix_row(lane);
    if (row >= rows) continue;
    device O* to = rows_at(row);
    const bool pairs = n % 2 == 0 && (ulong(to) & (2 * sizeof(O) - 1)) == 0;
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      const uint column = n0 + part.column + 8 * c + matrix_column(lane);
      if (8 * c >= part.columns || column >= n) continue;
      const O low = O(sum.at(r, c, 0) + added(column));
      if (pairs) {
        *(device metal::vec<O, 2>*)(to + column) = metal::vec<O, 2>(low, O(sum.at(r, c, 1) + added(column + 1)));
        continue;
      }
      to[column] = low;
      if (column + 1 < n) to[column + 1] = O(sum.at(r, c, 1) + added(column + 1));
    }
  }
}

// The same to neighboring rows, from row m0 of `out` [m, n] on.
template <typename O, uint M, uint N, typename Added = NothingAdded>
METAL_FUNC void store(thread TileSum<M, N>& sum, ProductPart part, device O* out, uint m0, uint m, uint n0, uint n,
                      uint lane, Added added = Added()) {
  store_rows<O>(sum, part, EvenRows<O>{out + ulong(m0) * n, n}, m - m0, n0, n, lane, added);
}

// A tile [Rows, Columns] on its way from device memory, where it has dtype T, to threadgroup memory, where it has dtype
// E and rows tile_stride<E>(Columns) apart. All `Threads` threads start it, multiply another tile meanwhile, and finish
// it; after the next barrier it is there. A tile must not be finished where others still read. Started towards its
// place, a tile that keeps its dtype is copied without registers.
template <typename T, typename E, uint Rows, uint Columns, uint Threads>
struct TileCopy {
  static constexpr bool kSame = metal::is_same_v<T, E>;
  // Neighbors of a row that a thread brings at once, from every kStep-th row.
  static constexpr uint kPiece = Columns % 8 == 0 && Threads % (Columns / 8) == 0 && kSame && sizeof(E) == 2 ? 8 : 4;
  static constexpr uint kPerRow = Columns / kPiece, kStep = Threads / kPerRow, kOwn = (Rows + kStep - 1) / kStep;
  static_assert(Threads % kPerRow == 0, "all pieces of a thread have the same columns");
  struct alignas(kPiece * sizeof(T)) Piece {
    T of[kPiece];
  };
  Piece held[kOwn];
  bool arrives;  // without registers

  // The first `rows` rows and `columns` columns from `from` on, rows `stride` apart; zeros for the others.
  METAL_FUNC void start(device const T* from, ulong stride, uint rows, uint columns, uint index) {
    start_rows(EvenRows<const T>{from, stride}, 0, rows, columns, index);
  }
  // The same of rows anywhere in device memory: row r of the tile begins at element `begin` of rows_at(r).
  template <typename RowsAt>
  METAL_FUNC void start_rows(RowsAt rows_at, uint begin, uint rows, uint columns, uint index) {
    arrives = false;
    const uint first = index / kPerRow, column = index % kPerRow * kPiece;
    const uint left = column < columns ? metal::min(columns - column, kPiece) : 0;
    rows = metal::min(rows, Rows);
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
      held[i] = zeros();
      if (first + i * kStep >= rows || left == 0) continue;
      device const T* from = rows_at(first + i * kStep) + begin + column;
      if (left == kPiece && (ulong(from) & (sizeof(Piece) - 1)) == 0)
        held[i] = *(device const Piece*)from;
      else
        MLXTS_UNROLL for (uint n = 0; n < kPiece; ++n) held[i].of[n] = n < left ? from[n] : T(0.0f);
    }
  }
  // The same towards the tile `to`, which nobody else reads or writes until the barrier behind `finish(to, index)`.
  METAL_FUNC void start(threadgroup E* to, device const T* from, ulong stride, uint rows, uint columns, uint index) {
    start_rows(to, EvenRows<const T>{from, stride}, 0, rows, columns, index);
  }
  template <typename RowsAt>
  METAL_FUNC void start_rows(threadgroup E* to, RowsAt rows_at, uint begin, uint rows, uint columns, uint index) {
    if constexpr (kSame) {
      arrives = true;
      const uint first = index / kPerRow, column = index % kPerRow * kPiece;
      const uint left = column < columns ? metal::min(columns - column, kPiece) : 0;
      rows = metal::min(rows, Rows);
      device const T* from[kOwn];
      uint counts[kOwn];
      bool aligned = true;
      MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
        const uint row = first + i * kStep;
        const bool exists = row < rows && left > 0;
        // What does not exist is not read, but has an address.
        from[i] = rows_at(exists ? row : 0) + (exists ? begin + column : 0);
        counts[i] = exists ? left : 0;
        aligned = aligned && (ulong(from[i]) & (sizeof(Piece) - 1)) == 0;
      }
      if (aligned) {
        MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
          const uint row = first + i * kStep;
          if (Rows % kStep != 0 && row >= Rows) continue;
          machine::copy_start<sizeof(Piece)>(place(to, row, column), from[i], counts[i] * sizeof(T));
        }
      } else {
        for (uint i = 0; i < kOwn; ++i) {
          const uint row = first + i * kStep;
          if (Rows % kStep != 0 && row >= Rows) continue;
          for (uint n = 0; n < kPiece; ++n) place(to, row, column)[n] = n < counts[i] ? from[i][n] : T(0.0f);
        }
      }
      machine::copies_end();
    } else {
      start_rows(rows_at, begin, rows, columns, index);
    }
  }
  METAL_FUNC void finish(threadgroup E* to, uint index) const {
    if (arrives)
      machine::copies_wait<0>();
    else
      finish(to, index, Unchanged());
  }
  // The same, but four neighbors from (row, column) on become change(row, column, neighbors), a float4. Not for what
  // was started towards its place.
  template <typename Change>
  METAL_FUNC void finish(threadgroup E* to, uint index, Change change) const {
    const uint first = index / kPerRow, column = index % kPerRow * kPiece;
    if (arrives) machine::copies_wait<0>();
    MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
      const uint row = first + i * kStep;
      if (Rows % kStep != 0 && row >= Rows) continue;
      Piece own = held[i];
      if constexpr (kSame) {
        if (arrives) own = *(threadgroup const Piece*)place(to, row, column);
      }
      struct alignas(kPiece * sizeof(E)) Changed {
        E of[kPiece];
      } piece;
      MLXTS_UNROLL for (uint n = 0; n < kPiece; n += 4) {
        const auto of = own.of + n;
        const float4 v = change(row, column + n, float4(float(of[0]), float(of[1]), float(of[2]), float(of[3])));
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) piece.of[n + e] = E(v[e]);
      }
      *(threadgroup Changed*)place(to, row, column) = piece;
    }
  }

 private:
  struct Unchanged {
    METAL_FUNC float4 operator()(uint, uint, float4 v) const { return v; }
  };
  METAL_FUNC static Piece zeros() {
    Piece piece;
    MLXTS_UNROLL for (uint n = 0; n < kPiece; ++n) piece.of[n] = T(0.0f);
    return piece;
  }
  METAL_FUNC static threadgroup E* place(threadgroup E* to, uint row, uint column) {
    return to + row * tile_stride<E>(Columns) + column;
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
    const metal::vec<E, 4> four = *(threadgroup const metal::vec<E, 4>*)(from + row * tile_stride<E>(Columns) + column);
    device T* at = to + row * stride + column;
    if (columns - column >= 4) {
      store4(at, float4(float(four.x), float(four.y), float(four.z), float(four.w)));
    } else {
      for (uint e = 0; e < columns - column; ++e) at[e] = T(float(four[e]));
    }
  }
}

}  // namespace mlxts
