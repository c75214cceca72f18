// The query rows that a threadgroup has, and the keys that they see.
#pragma once
#include "kv_cache.h"
#include "partial_vectors.h"
#include "query_rows.h"

namespace mlxts {

// Whether all lengths are right, and the one of `sequence`: one answer for the whole threadgroup, even if the lengths
// change meanwhile. `words` are two.
struct CheckedLength {
  bool right;
  uint length;
};
template <typename P>
METAL_FUNC CheckedLength checked_length(device const Index* lengths, uint sequence, constant P& p, FaultSearch search,
                                        LengthFaults codes, threadgroup uint* words, uint index) {
  const Indices all = {lengths, true};
  uint2 own = uint2(0);
  if (index < kSimd) {
    own.x = lengths_right(all, p.batch, least_length(p), p.capacity, search, codes);
    own.y = length_at(all, sequence, least_length(p), p.capacity);
  }
  const uint2 first = threadgroup_first(own, words, index);
  return {first.x != 0, first.y};
}

struct AttentionTile {
  QueryRows queries;
  uint first, rows;  // of the query rows
  uint begin, end;   // of the keys: those from `end` on are seen by no row
  float scale;

  METAL_FUNC ulong address(uint row) const { return queries.address(first + row); }
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
