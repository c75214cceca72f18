// A piece of a cache of bf16 by AMX. Latents are left tiles as they lie, so that scores are [key][query row]: lanes of
// vectors are query rows. As values they become right tiles, 32 columns at a time.
#pragma once
#include "piece_rows.h"
#include "tile_pairs.h"

#if defined(__AMX_BF16__)
namespace mlxts {

struct TilePiece : PieceRows<bf16> {
  static constexpr size_t kKeys = MLA_PIECES_TILE_KEYS, kRows = 2 * kAmxRows;
  static_assert(kKeys % kTileDepth == 0 && kAmxRows == kLanes);

  // Elements of a query: its latent part and its rotated one begin tiles of their own.
  size_t rank_depth() const { return round_up(p.rank, kTileDepth); }
  size_t rope_depth() const { return round_up(p.rope, kTileDepth); }
  size_t depth() const { return rank_depth() + rope_depth(); }
  size_t row_blocks() const { return tiles_of(rows, kAmxRows); }
  size_t blocks_from(int row) const { return rows - row > int(kAmxRows) ? 2 : 1; }

  // Right tiles [⌈rows / 16⌉, depth / 32].
  bf16* query(int row) const { return reinterpret_cast<bf16*>(scratch.queries) + row * depth(); }
  // [rows, kKeys]
  bf16* weights(int row) const { return reinterpret_cast<bf16*>(scratch.weights) + row * kKeys; }
  // Tiles [⌈rank / 16⌉, ⌈rows / 16⌉].
  float* sums(int row, size_t column) const {
    return scratch.sums + (column / kAmxRows * row_blocks() + row / kAmxRows) * kSumsSize;
  }

  void load_queries(const float* queries, const bf16* q_pe) const {
    bf16* rounded = reinterpret_cast<bf16*>(scratch.copied);
    Largest unused[kAmxRows];
    for (int row = 0; row < rows; row += kAmxRows) {
      const int some = rows - row < kAmxRows ? rows - row : kAmxRows;
      for (int r = 0; r < some; ++r) {
        const float* from = queries + (first + row + r) * p.rank;
        bf16* to = rounded + r * p.rank;
        for_lanes(
            p.rank, [&](size_t i) { store_for_dot(to + i, load(from + i)); },
            [&](size_t i, int n) { store_partial(to + i, load_partial(from + i, n), n); });
      }
      pack_right<false>([&](int r) { return rounded + r * p.rank; }, some, p.rank, query(row), unused);
      pack_right<false>([&](int r) { return q_pe + (first + row + r) * p.rope; }, some, p.rope,
                        query(row) + rank_depth() * kAmxRows, unused);
    }
  }
  // Before the first block, which sets the sums, or where there is `none`.
  void clear(bool none) const {
    for (int row = 0; row < int(row_blocks()) * kAmxRows; ++row) softmax().clear(row);
    if (none) memset(scratch.sums, 0, row_blocks() * tiles_of(p.rank, kAmxRows) * kSumsSize * sizeof(float));
  }

  // The block of `count` rows of the cache from `key` on; the first one of the piece comes with `begins`.
  void attend(size_t key, int count, bool begins) const {
    TileFetch fetch = next_block(key);
    int common = count;
    for (int row = 0; row < rows; row += int(kRows)) {
      score(key, count, row, fetch);
      for (int r = row; r < rows && r < row + int(kRows); r += kAmxRows) {
        const int all = weigh(key, count, r, begins);
        common = all < common ? all : common;
      }
    }
    for (size_t d = 0; d < p.rank; d += kTileDepth) {
      if (common < count)
        add_columns<true>(key, count, d, begins, fetch);
      else
        add_columns<false>(key, count, d, begins, fetch);
    }
  }

  void store_rows(float* partial) const {
    for (int row = 0; row < rows; ++row, partial += partial_size(p.rank)) {
      partial[0] = scratch.maxima[row];
      partial[1] = scratch.denominators[row];
      for (size_t d = 0; d < p.rank; d += kAmxRows)
        store_up_to(partial + MLA_PIECES_SOFTMAX_SIZE + d, load(sums(row, d) + row % kAmxRows * kAmxRows), p.rank - d);
    }
  }

 private:
  // The rows of the cache behind a block, which are fetched in all steps of its products: this thread's next ones.
  TileFetch next_block(size_t key) const {
    TileFetch fetch;
    const size_t next = key + kKeys;
    if (next >= visible.length) return fetch;
    const size_t count = visible.length - next < kKeys ? visible.length - next : kKeys;
    fetch.left = {reinterpret_cast<const char*>(latents + next * p.latentStride), 0, 1,
                  count * p.latentStride * sizeof(bf16)};
    fetch.right = {reinterpret_cast<const char*>(rotated + next * p.ropeStride), 0, 1,
                   count * p.ropeStride * sizeof(bf16)};
    const size_t steps = kKeys / kTileDepth, strips = tiles_of(p.rank, kTileDepth);
    fetch.spread(tiles_of(rows, kRows) * steps * (strips + depth() / kTileDepth) + steps * strips);
    return fetch;
  }

  // Scores [count, kRows] of up to kRows rows from `row` on.
  void score(size_t key, int count, int row, TileFetch& fetch) const {
    const bool in_place = p.rank % kTileDepth == 0 && p.rope % kTileDepth == 0;
    for (int t = 0; t < count; t += int(kTileDepth)) {
      const size_t some = size_t(count - t) < kTileDepth ? count - t : kTileDepth;
      const bf16 *c = latents + (key + t) * p.latentStride, *k_pe = rotated + (key + t) * p.ropeStride;
      float* to = scratch.scores + t * kRows;
      if (in_place && some == kTileDepth) {
        multiply(c, p.latentStride, rank_depth(), some, query(row), blocks_from(row), false, to, fetch);
        multiply(k_pe, p.ropeStride, rope_depth(), some, query(row) + rank_depth() * kAmxRows, blocks_from(row), true,
                 to, fetch);
      } else {
        multiply(copy_keys(c, k_pe, some), depth(), depth(), some, query(row), blocks_from(row), false, to, fetch);
      }
    }
  }
  void multiply(const bf16* keys, size_t stride, size_t columns, size_t count, const bf16* queries, size_t blocks,
                bool more, float* to, TileFetch& fetch) const {
    const TileOperands o{keys, kAmxRows * stride, kTileDepth, stride, queries, kAmxRows * depth(), columns / kTileDepth,
                         to,   kAmxRows * kRows,  kAmxRows,   kRows,  more};
    multiply_tiles<1, 1>(tiles_of(count, kAmxRows), blocks, o, fetch);
  }
  // Keys with zeros behind their columns and behind the last one.
  const bf16* copy_keys(const bf16* c, const bf16* k_pe, size_t count) const {
    bf16* copied = reinterpret_cast<bf16*>(scratch.copied);
    memset(copied, 0, round_up(count, kAmxRows) * depth() * sizeof(bf16));
    for (size_t r = 0; r < count; ++r) {
      memcpy(copied + r * depth(), c + r * p.latentStride, p.rank * sizeof(bf16));
      memcpy(copied + r * depth() + rank_depth(), k_pe + r * p.ropeStride, p.rope * sizeof(bf16));
    }
    return copied;
  }

  // Which of 16 rows from `row` on see a key that not all see.
  __mmask16 lanes_that_see(int row, size_t key) const {
    uint32_t lanes = 0;
    for (int r = row; r < rows && r < row + kAmxRows; ++r) lanes |= uint32_t(visible.sees(token(r), key)) << (r - row);
    return __mmask16(lanes);
  }

  // The weights of 16 rows from `row` on. Returns how many of the first keys all of them see.
  int weigh(size_t key, int count, int row, bool begins) const {
    float* scores = scratch.scores + row % kRows;
    int common = count;
    for (int r = row; r < rows && r < row + kAmxRows; ++r) {
      const int all = prefix(r, key, count);
      common = all < common ? all : common;
    }
    const vf32 low = splat(-INFINITY), scale = splat(p.scale < FLT_MIN ? FLT_MIN : p.scale);
    vf32 top = low;
    for (int t = 0; t < count; ++t) {
      vf32 x = load(scores + t * kRows) * scale;
      if (t >= common)
        x = reinterpret_cast<vf32>(_mm512_mask_mov_ps(reinterpret_cast<__m512>(low), lanes_that_see(row, key + t),
                                                      reinterpret_cast<__m512>(x)));
      top = max(top, x);
      store(scores + t * kRows, x);
    }
    const vf32 before = load(scratch.maxima + row), now = max(top, before);
    // Where the maximum is −∞, any base gives exp(−∞) = 0.
    const vf32 base = select(now == low, vf32{}, now);
    vf32 sum = {};
    const auto weight = [&](int t) {
      if (t >= count) return vf32{};
      const vf32 w = exp2_for_dot((load(scores + t * kRows) - base) * splat(1.44269504f));
      sum = sum + w;
      return w;
    };
    for (int t = 0; t < count; t += int(kTileDepth)) {
      vu32 pairs[kAmxRows];
      for (int i = 0; i < kAmxRows; ++i) {
        const vf32 a = weight(t + 2 * i), b = weight(t + 2 * i + 1);
        pairs[i] = pair_for_dot(a, b);
      }
      transpose(pairs);
      for (int r = 0; r < kAmxRows; ++r) memcpy(weights(row + r) + t, &pairs[r], sizeof pairs[r]);
    }
    store(scratch.maxima + row, now);
    if (!begins) {
      const vf32 factors = exp(before - base);
      sum = fma(load(scratch.denominators + row), factors, sum);
      scale_sums(row, factors);
    }
    store(scratch.denominators + row, sum);
    return common;
  }
  static vu32 pair_for_dot(vf32 a, vf32 b) {
    const __m512i both =
        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a)));
    const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return reinterpret_cast<vu32>(_mm512_permutexvar_epi16(turns, both));
  }
  void scale_sums(int row, vf32 factors) const {
    for (int r = 0; r < kAmxRows; ++r) {
      if (factors[r] == 1) continue;
      for (size_t d = 0; d < p.rank; d += kAmxRows) {
        float* at = sums(row, d) + r * kAmxRows;
        store(at, load(at) * splat(factors[r]));
      }
    }
  }

  // Adds the weighted latents' columns from d on, at most kTileDepth. `Ragged`: rows see different keys of the block.
  template <bool Ragged>
  void add_columns(size_t key, int count, size_t d, bool begins, TileFetch& fetch) const {
    const size_t columns = p.rank - d < kTileDepth ? p.rank - d : kTileDepth, steps = tiles_of(count, kTileDepth);
    constexpr size_t kNext = kKeys * kAmxRows;  // from a tile of 16 columns to the next
    const bf16* from = latents + key * p.latentStride + d;
    bf16* packed = reinterpret_cast<bf16*>(scratch.values);
    bool finite = true;
    for (size_t s = 0; s < steps; ++s) {
      const size_t t = s * kTileDepth, some = count - t < kTileDepth ? count - t : kTileDepth;
      fetch.step();
      finite &=
          pack_pairs<Ragged>(from + t * p.latentStride, p.latentStride, some, columns, packed + s * kTileSize, kNext);
    }
    if (Ragged && !finite) return add_seen(key, count, d, columns, begins);
    TileOperands o{weights(0), kAmxRows * kKeys,         kTileDepth, kKeys,  packed, kNext, steps, sums(0, d),
                   kSumsSize,  row_blocks() * kSumsSize, kAmxRows,   !begins};
    for (int row = 0; row < rows; row += int(kRows)) {
      multiply_tiles<1, 1>(blocks_from(row), tiles_of(columns, kAmxRows), o, fetch);
      o.left += kRows * kKeys;
      o.sums += 2 * kSumsSize;
    }
  }
  // The same row by row: 0 · NaN is NaN, so what a row does not see must not meet its arithmetic.
  void add_seen(size_t key, int count, size_t d, size_t columns, bool begins) const {
    for (int row = 0; row < rows; ++row) {
      const int end = seen(row, key, count);
      for (size_t c = d; c < d + columns; ++c) {
        float& at = sums(row, c)[row % kAmxRows * kAmxRows + c % kAmxRows];
        float sum = begins ? 0 : at;
        for (int t = 0; t < end; ++t)
          if (visible.sees(token(row), key + t))
            sum += to_f32(weights(row)[t]) * to_f32(latents[(key + t) * p.latentStride + c]);
        at = sum;
      }
    }
  }
};

}  // namespace mlxts
#endif
