// A piece of a cache of 16 bits, which queries of the same dtype all see, by the products of matrix units: q · Kᵀ with
// eight keys, then Vᵀ · weights. Each simdgroup has keys of its own, with their softmax and sums, and meets the others
// once, at the end. Columns and keys may have any order in a product, so a lane loads eight neighbors of a row at once,
// as the operands of two products or of four. A weight is the sum of two numbers of the dtype, which is nearly exact.
#pragma once
#include "metal_tile.h"
#include "sdpa_tile.h"

namespace mlxts {

constant constexpr uint kOwnRows = SDPA_PIECES_TILE_ROWS, kParts = SDPA_PIECES_SIMDGROUPS;
constant constexpr uint kStepKeys = 8;  // of a simdgroup
static_assert(kOwnRows == 8, "a product has eight rows of q");

METAL_FUNC void multiply_eight(thread float (&d)[4], uint a0, uint a1, uint b, bfloat) {
  machine::mma_bf16_k8(d, a0, a1, b);
}
METAL_FUNC void multiply_eight(thread float (&d)[4], uint a0, uint a1, uint b, half) {
  machine::mma_f16_k8(d, a0, a1, b);
}

// What a simdgroup has of a piece. Lane 4 r + j has words of query row r and of keys r, 2 j and 2 j + 1; the weights of
// row r with keys 2 j and 2 j + 1; and sums of rows 2 j and 2 j + 1.
template <typename E, uint Dim>
struct PieceProducts {
  static constant constexpr uint kThirtyTwos = Dim / 32, kSixtyFours = Dim / 64;
  device const E *keys, *values;
  uint end, row, pair;
  uint4 queries[kThirtyTwos], own_keys[kThirtyTwos], own_values[kSixtyFours][2];
  // Of columns 64 c + 8 r + 2 u and the one after it, of two rows each.
  float sums[kSixtyFours][4][4];
  float maximum, denominator;  // of row r; the denominator is that of the lane's own keys

  METAL_FUNC PieceProducts(device const E* q, device const E* keys, device const E* values, uint end, uint lane)
      : keys(keys), values(values), end(end), row(lane / 4), pair(lane % 4), maximum(-INFINITY), denominator(0.0f) {
    MLXTS_UNROLL for (uint c = 0; c < kThirtyTwos; ++c) queries[c] = *(device const uint4*)(q + 32 * c + 8 * pair);
    MLXTS_UNROLL for (uint c = 0; c < kSixtyFours; ++c) MLXTS_UNROLL for (uint u = 0; u < 4; ++u)
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[c][u][e] = 0.0f;
  }

  // Keys that do not exist are zeros.
  METAL_FUNC void start_keys(uint block) thread {
    const uint key = block + row;
    device const E* from = keys + ulong(key) * Dim + 8 * pair;
    MLXTS_UNROLL for (uint c = 0; c < kThirtyTwos; ++c) own_keys[c] =
        key < end ? *(device const uint4*)(from + 32 * c) : uint4(0u);
  }
  METAL_FUNC void start_values(uint block) thread {
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
      const uint key = block + 2 * pair + i;
      device const E* from = values + ulong(key) * Dim + 8 * row;
      MLXTS_UNROLL for (uint c = 0; c < kSixtyFours; ++c) own_values[c][i] =
          key < end ? *(device const uint4*)(from + 64 * c) : uint4(0u);
    }
  }

  METAL_FUNC float2 scores(uint block, float scale) const thread {
    float even[4] = {}, odd[4] = {};
    MLXTS_UNROLL for (uint c = 0; c < kThirtyTwos; ++c) {
      const uint4 a = queries[c], b = own_keys[c];
      const uint first[4] = {a.x, 0, a.y, 0}, second[4] = {a.z, 0, a.w, 0};
      const uint first_key[2] = {b.x, b.y}, second_key[2] = {b.z, b.w};
      Pairs<E>::multiply_add(even, first, first_key);
      Pairs<E>::multiply_add(odd, second, second_key);
    }
    const uint key = block + 2 * pair;
    return float2(key < end ? (even[0] + odd[0]) * scale : -INFINITY,
                  key + 1 < end ? (even[1] + odd[1]) * scale : -INFINITY);
  }

  // The weights of a block's keys; what was added up before is scaled to the new maximum.
  METAL_FUNC float2 weights(float2 scores, bool first) thread {
    float most = metal::max(scores.x, scores.y);
    most = metal::max(most, metal::simd_shuffle_xor(most, ushort(1)));
    most = metal::max(most, metal::simd_shuffle_xor(most, ushort(2)));
    most = metal::max(most, maximum);
    // Where the maximum is −∞, any base gives exp(−∞) = 0.
    const float base = most == -INFINITY ? 0.0f : most;
    const float2 weight = float2(metal::precise::exp(scores.x - base), metal::precise::exp(scores.y - base));
    if (!first) {
      const float factor = metal::precise::exp(maximum - base);
      const float factors[2] = {metal::simd_shuffle(factor, ushort(8 * pair)),
                                metal::simd_shuffle(factor, ushort(8 * pair + 4))};
      denominator *= factor;
      MLXTS_UNROLL for (uint c = 0; c < kSixtyFours; ++c) MLXTS_UNROLL for (uint u = 0; u < 4; ++u)
          MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[c][u][e] *= factors[e % 2];
    }
    maximum = most;
    denominator += weight.x + weight.y;
    return weight;
  }

  METAL_FUNC void add_values(float2 weight) thread {
    const uint most = Pairs<E>::of(weight.x, weight.y);
    const uint rest = Pairs<E>::of(weight.x - Pairs<E>::low(most), weight.y - Pairs<E>::high(most));
    MLXTS_UNROLL for (uint c = 0; c < kSixtyFours; ++c) {
      const uint4 a = own_values[c][0], b = own_values[c][1];
      MLXTS_UNROLL for (uint u = 0; u < 4; ++u) {
        // The same column of two keys.
        const uint even = machine::bytes_of(a[u], b[u], 0x5410), odd = machine::bytes_of(a[u], b[u], 0x7632);
        multiply_eight(sums[c][u], even, odd, most, E());
        multiply_eight(sums[c][u], even, odd, rest, E());
      }
    }
  }

  // Steps of eight keys, kParts · 8 apart.
  METAL_FUNC void attend(uint begin, float scale) thread {
    start_keys(begin);
    start_values(begin);
    for (uint block = begin; block < end; block += kParts * kStepKeys) {
      const float2 score = scores(block, scale);
      const uint next = block + kParts * kStepKeys;
      if (next < end) start_keys(next);
      const float2 weight = weights(score, block == begin);
      add_values(weight);
      if (next < end) start_values(next);
    }
    denominator += metal::simd_shuffle_xor(denominator, ushort(1));
    denominator += metal::simd_shuffle_xor(denominator, ushort(2));
  }

  // Where the simdgroup leaves its sums and softmax: rows of Dim sums, further apart than they are long.
  static constant constexpr uint kStride = Dim + SDPA_PIECES_PRODUCT_PADDING;
  METAL_FUNC void store(threadgroup float* to, threadgroup float2* softmax) const thread {
    if (pair == 0) softmax[row] = float2(maximum, denominator);
    MLXTS_UNROLL for (uint c = 0; c < kSixtyFours; ++c) MLXTS_UNROLL for (uint r = 0; r < 2; ++r)
        MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
      thread const float *first = sums[c][2 * i], *second = sums[c][2 * i + 1];
      *(threadgroup float4*)(to + (2 * pair + r) * kStride + 64 * c + 8 * row + 4 * i) =
          float4(first[r], first[2 + r], second[r], second[2 + r]);
    }
  }
};

// As attend_piece.
template <uint Dim, typename E>
METAL_FUNC void attend_by_products(device const E* q, device const E* keys, device const E* values,
                                   thread const AttentionTile& tile, device float* to, SdpaPiecesScratch scratch,
                                   uint lane, uint simdgroup) {
  constexpr uint kStride = PieceProducts<E, Dim>::kStride;
  threadgroup float2* softmax = (threadgroup float2*)scratch.scores0;
  // Simdgroups that have keys.
  const uint parts = metal::min((tile.end - tile.begin + kStepKeys - 1) / kStepKeys, kParts);
  if (simdgroup < parts) {
    // Rows that do not exist are the last one once more.
    device const E* own = q + tile.address(metal::min(lane / 4, tile.rows - 1));
    PieceProducts<E, Dim> products(own, keys, values, tile.end, lane);
    products.attend(tile.begin + simdgroup * kStepKeys, tile.scale);
    products.store(scratch.sums + simdgroup * kOwnRows * kStride, softmax + simdgroup * kOwnRows);
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  constexpr uint kFours = Dim / 4;
  for (uint at = simdgroup * kSimd + lane; at < tile.rows * kFours; at += kParts * kSimd) {
    const uint row = at / kFours, column = at % kFours * 4;
    float maximum = -INFINITY;
    for (uint part = 0; part < parts; ++part) maximum = metal::max(maximum, softmax[part * kOwnRows + row].x);
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    float denominator = 0.0f;
    float4 sum = float4(0.0f);
    for (uint part = 0; part < parts; ++part) {
      const float2 own = softmax[part * kOwnRows + row];
      const float factor = metal::precise::exp(own.x - base);
      denominator = metal::fma(own.y, factor, denominator);
      const float4 four = *(threadgroup const float4*)(scratch.sums + (part * kOwnRows + row) * kStride + column);
      sum = metal::fma(four, float4(factor), sum);
    }
    device float* out = to + ulong(row) * partial_size(Dim);
    store4_at_once(out + SDPA_PIECES_SOFTMAX_SIZE + column, sum);
    if (column > 0) continue;
    out[0] = maximum;
    out[1] = denominator;
  }
}

// Whether a lane may load eight elements there at once.
template <typename E>
METAL_FUNC bool aligned_to_eight(device const E* at) {
  return (ulong(at) & 15) == 0;
}

// By products, where that may be: otherwise false.
template <typename E>
METAL_FUNC bool attended_by_products(device const E* q, device const E* keys, device const E* values,
                                     thread const AttentionTile& tile, device float* to, SdpaPiecesScratch scratch,
                                     uint lane, uint simdgroup) {
  const uint dim = tile.queries.dim;
  if ((dim != 128 && dim != 256) || tile.end <= tile.begin || tile.end > tile.limit(0)) return false;
  if (!aligned_to_eight(q) || !aligned_to_eight(keys) || !aligned_to_eight(values)) return false;
  if (dim == 128)
    attend_by_products<128>(q, keys, values, tile, to, scratch, lane, simdgroup);
  else
    attend_by_products<256>(q, keys, values, tile, to, scratch, lane, simdgroup);
  return true;
}

}  // namespace mlxts
