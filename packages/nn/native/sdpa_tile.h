// The query rows that a threadgroup has, and the keys that they see.
#pragma once
#include "kv_cache.h"
#include "partial_vectors.h"
#include "query_rows.h"

namespace mlxts {

// Whether all lengths are right, and the one of `sequence`: one answer for the whole threadgroup, even if the lengths
// change meanwhile. The first simdgroup knows which is wrong.
struct CheckedLength {
  bool right;
  uint length;
  WrongNumber wrong;
};
// Lengths are read before the wait for other kernels. `words` are two.
template <typename P>
METAL_FUNC CheckedLength checked_length(device const Index* lengths, uint sequence, constant P& p, FaultSearch search,
                                        threadgroup uint* words, uint index) {
  const Indices all = {lengths, true};
  WrongNumber wrong = {~0u, 0};
  uint2 own = uint2(0);
  if (index < kSimd) {
    wrong = wrong_length(all, p.batch, least_length(p), p.capacity, search);
    own = uint2(metal::simd_min(wrong.place) == ~0u, length_at(all, sequence, least_length(p), p.capacity));
  }
  const uint2 first = threadgroup_first(own, words, index);
  return {first.x != 0, first.y, wrong};
}
// Waits when `known` has been computed; then reports a wrong length. Whether there is none.
template <typename P>
METAL_FUNC bool waited_for_kernels(CheckedLength checked, uint known, constant P& p, FaultSearch search,
                                   LengthFaults codes, uint index) {
  wait_for_kernels(known);
  if (!checked.right && index < kSimd) no_wrong_length(checked.wrong, p.capacity, search, codes);
  return checked.right;
}

struct AttentionTile {
  QueryRows queries;
  uint first, rows;  // of the query rows
  uint begin, end;   // of the keys: those from `end` on are seen by no row
  float scale;

  METAL_FUNC ulong address(uint row) const { return queries.address(first + row); }
  // Those of all rows; rows that do not exist are the last one once more.
  template <uint Rows>
  METAL_FUNC void addresses(thread ulong (&to)[Rows]) const {
    uint head = first % queries.share;
    ulong at = address(0);
    for (uint r = 0; r < Rows; ++r) {
      to[r] = at;
      if (r + 1 >= rows) continue;
      const bool next_token = ++head == queries.share;
      if (next_token) head = 0;
      at += (next_token ? queries.heads - queries.share + 1 : 1) * ulong(queries.dim);
    }
  }
  // The key at which what a row sees ends.
  METAL_FUNC uint limit(uint row) const { return row < rows ? metal::min(end, uint(queries.visible(first + row))) : 0; }
  METAL_FUNC bool sees(uint row, uint key) const { return key < limit(row); }
};

// The tile of the query rows from `first` on, at most `most`, over keys `begin` to `end` as far as it sees them.
METAL_FUNC AttentionTile attention_tile(QueryRows queries, uint first, uint most, uint begin, uint end, float scale) {
  AttentionTile tile = {queries, first, metal::min(queries.rows - first, most), begin, end, scale};
  tile.end = tile.limit(tile.rows - 1);
  return tile;
}

}  // namespace mlxts
