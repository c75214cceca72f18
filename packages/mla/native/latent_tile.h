// The query rows that a threadgroup of a GPU has, and the piece of the cache that it has for them.
#pragma once
#include "latent_pieces.h"

namespace mlxts {

// How many of `end` elements lie from `at` on.
METAL_FUNC uint left(uint at, uint end) { return at < end ? end - at : 0; }

struct Tile {
  Visible visible;
  uint heads, first, rows;
  uint begin, end;  // of the keys: those from `end` on are seen by no row
  bool exists;      // false where the sequence has no such piece, or a length is wrong

  METAL_FUNC uint token(uint row) const thread { return (first + row) / heads; }
  // Whether a row sees a key of the piece.
  METAL_FUNC bool sees(uint row, uint key) const thread {
    return row < rows && key < end && visible.sees(token(row), key);
  }
  // The key up to which all rows see all keys of the piece.
  METAL_FUNC uint common() const thread { return metal::min(end, uint(visible.prefix(token(0)))); }
};

// The tile of the query rows from `first` on, at most `most`, with piece `piece` of the cache of `sequence`: one answer for
// the whole threadgroup, even if the lengths change meanwhile. `words` are two.
template <typename P>
METAL_FUNC Tile tile_of(constant P& p, device const Index* lengths, device const uint* mask, FaultSearch search,
                        LengthFaults codes, threadgroup uint* words, uint piece, uint sequence, uint first, uint most,
                        uint index) {
  const Indices all = {lengths, true};
  uint2 own = uint2(0);
  if (index < kSimd) {
    own.x = lengths_right(all, p.batch, least_length(p), p.capacity, search, codes);
    own.y = length_at(all, sequence, least_length(p), p.capacity);
  }
  // Whether all lengths are right, and the sequence's own.
  const uint2 checked = threadgroup_first(own, words, index);
  const uint length = checked.y, keys = piece_keys(length, p.mostPieces), begin = piece * keys;
  const uint rows = metal::min(p.tokens * p.heads - first, most);
  Tile tile = {visible_rows(p, length, mask), p.heads, first, rows, begin, 0, checked.x != 0 && begin < length};
  tile.end = metal::min(metal::min(length, begin + keys), uint(tile.visible.end(tile.token(rows - 1))));
  return tile;
}

}  // namespace mlxts
