// The query rows of a threadgroup, and a sequence's cache, of which they meet a piece.
#pragma once
#include "latent_pieces.h"
#include "online_softmax.h"

namespace mlxts {

template <typename C>
struct PieceRows {
  const MlaPiecesParams& p;
  const MlaPiecesScratch& scratch;
  Visible visible;
  size_t first;  // of the query rows
  int rows;
  const C* latents;  // of the sequence
  const C* rotated;

  Softmax softmax() const { return {scratch.maxima, scratch.denominators}; }
  size_t token(int row) const { return (first + row) / p.heads; }

  // How many of the `count` rows of the cache from `key` on lie before `end`.
  static int before(size_t end, size_t key, int count) {
    return int(end <= key ? 0 : end - key < size_t(count) ? end - key : count);
  }
  // How many of them a row sees at most; how many of the first ones it sees, whatever its mask says.
  int seen(int row, size_t key, int count) const { return before(visible.end(token(row)), key, count); }
  int prefix(int row, size_t key, int count) const { return before(visible.prefix(token(row)), key, count); }
};

}  // namespace mlxts
