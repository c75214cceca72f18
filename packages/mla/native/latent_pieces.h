// The query rows of a sequence, which rows of the cache they see, and the pieces into which the cache is cut.
#pragma once
#include "cache_rows.h"
#include "mla_pieces.params.h"

namespace mlxts {

#ifdef __METAL_VERSION__
typedef device const uint* TreeMask;
#else
typedef const uint32_t* TreeMask;
#endif

// What the tokens of a sequence see of the cache's `length` valid rows, of which the last `tokens` are new.
struct Visible {
  Count length, tokens;
  bool causal, masked;
  TreeMask mask;  // [tokens, ⌈tokens / 32⌉], where `masked`

  // The rows from the first one on that a token sees, whatever its mask says.
  MLXTS_FUNC Count prefix(Count token) const {
    return masked ? length - tokens : causal ? length - tokens + token + 1 : length;
  }
  // Behind the last row that a token may see.
  MLXTS_FUNC Count end(Count token) const { return masked ? length : prefix(token); }
  MLXTS_FUNC bool sees(Count token, Count row) const {
    if (row < prefix(token)) return true;
    if (!masked || row >= length) return false;
    const Count other = row - (length - tokens);
    return mask[token * ((tokens + 31) / 32) + other / 32] >> other % 32 & 1;
  }
};

// Of the params of any kernel that attends.
template <typename P>
MLXTS_FUNC Visible visible_rows(MLXTS_PARAMS P& p, Count length, TreeMask mask) {
  return {length, p.tokens, p.causal != 0, (p.present & MLA_PIECES_HAS_TREE_MASK) != 0, mask};
}

// The fewest rows of the cache that a sequence may have.
template <typename P>
MLXTS_FUNC Count least_length(MLXTS_PARAMS P& p) {
  return p.causal || p.present & MLA_PIECES_HAS_TREE_MASK ? p.tokens : 0;
}

// Rows of a piece: whole blocks of keys. It depends on the length, and on `most`, which depends on the tokens and heads
// of the call alone, so a sequence has the same pieces in any batch.
MLXTS_FUNC Count piece_keys(Count length, Count most) {
  const Count keys = (length + most * MLA_PIECES_BLOCK_KEYS - 1) / (most * MLA_PIECES_BLOCK_KEYS) * MLA_PIECES_BLOCK_KEYS;
  return keys < MLA_PIECES_MIN_PIECE_KEYS ? MLA_PIECES_MIN_PIECE_KEYS : keys;
}

MLXTS_FUNC Count pieces_of(Count length, Count most) {
  const Count keys = piece_keys(length, most);
  return (length + keys - 1) / keys;
}

// Numbers of a query row of a piece: maximum and denominator of its softmax, and R sums.
MLXTS_FUNC Count partial_size(Count rank) { return MLA_PIECES_SOFTMAX_SIZE + rank; }

// Where they begin in `partial` [N, pieces, rows, partial_size].
MLXTS_FUNC Offset partial_address(Count sequence, Count piece, Count pieces, Count row, Count rows, Count rank) {
  return ((Offset(sequence) * pieces + piece) * rows + row) * partial_size(rank);
}

}  // namespace mlxts
