// The query rows of a sequence that share a key/value head: the tokens, and within each its heads. And the pieces into
// which the sequence's rows of the cache are cut where query rows are few.
#pragma once
#include "portable.h"
#include "sdpa_pieces.params.h"

namespace mlxts {

struct QueryRows {
  Count rows, share;  // `share` heads of a token
  Count heads, dim;
  uint64_t first;   // element of q at which the first row begins
  Count tokens, length;
  bool causal;

  // Element of q, and of the output, at which a row begins.
  MLXTS_FUNC uint64_t address(Count row) const {
    return first + (uint64_t(row / share) * heads + row % share) * dim;
  }
  // How many keys a row sees: the first ones.
  MLXTS_FUNC Count visible(Count row) const { return causal ? length - tokens + row / share + 1 : length; }
};

// Of a sequence whose cache has `length` valid rows; P are the params of a kernel of sdpa.
template <typename P>
MLXTS_FUNC QueryRows query_rows(MLXTS_PARAMS P& p, Count sequence, Count kv_head, Count length) {
  const Count share = p.heads / p.kvHeads;
  const uint64_t first = (uint64_t(sequence) * p.tokens * p.heads + kv_head * share) * p.dim;
  return {p.tokens * share, share, p.heads, p.dim, first, p.tokens, length, p.causal != 0};
}

// The fewest rows of the cache that a sequence may have.
template <typename P>
MLXTS_FUNC Count least_length(MLXTS_PARAMS P& p) {
  return p.causal ? p.tokens : 0;
}

// Rows of a piece: whole blocks of keys. It depends on the length and on the heads of the cache, so a sequence has the
// same pieces in any batch.
MLXTS_FUNC Count piece_keys(Count length, Count mostPieces) {
  const Count most = mostPieces * SDPA_PIECES_BLOCK_KEYS;
  const Count keys = (length + most - 1) / most * SDPA_PIECES_BLOCK_KEYS;
  return keys < SDPA_PIECES_MIN_PIECE_KEYS ? SDPA_PIECES_MIN_PIECE_KEYS : keys;
}

MLXTS_FUNC Count pieces_of(Count length, Count mostPieces) {
  const Count keys = piece_keys(length, mostPieces);
  return (length + keys - 1) / keys;
}

// Numbers of a query row of a piece: maximum and denominator of its softmax, and D sums.
MLXTS_FUNC Count partial_size(Count dim) { return SDPA_PIECES_SOFTMAX_SIZE + dim; }

// Where they begin in `partial` [B, Hkv, pieces, rows, partial_size].
MLXTS_FUNC uint64_t partial_address(uint64_t head, Count piece, Count pieces, Count row, Count rows, Count dim) {
  return ((head * pieces + piece) * rows + row) * partial_size(dim);
}

// A query row that is merged: its sequence, where its first piece begins in `partial`, and from one piece to the next.
struct MergedRow {
  Count sequence;
  uint64_t first, stride;
};

// A head of a token of q [B, T, H, D].
template <typename P>
MLXTS_FUNC MergedRow merged_row(Count sequence, Count token, Count head, MLXTS_PARAMS P& p) {
  const Count share = p.heads / p.kvHeads, rows = p.tokens * share;
  const uint64_t kv_head = uint64_t(sequence) * p.kvHeads + head / share;
  const uint64_t first = partial_address(kv_head, 0, p.pieces, token * share + head % share, rows, p.dim);
  return {sequence, first, uint64_t(rows) * partial_size(p.dim)};
}

}  // namespace mlxts
