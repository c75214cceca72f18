// What the tokens of a sequence see where each head has its own keys and values, and where the rows of a head lie.
#pragma once
#include "cache_rows.h"
#include "head_attention.params.h"

namespace mlxts {

// The fewest rows of the cache that a sequence may have.
MLXTS_FUNC Count least_length(MLXTS_PARAMS HeadAttentionParams& p) { return p.causal ? p.tokens : 0; }

// How many rows of the cache a token sees: the first ones.
MLXTS_FUNC Count visible_rows(MLXTS_PARAMS HeadAttentionParams& p, Count length, Count token) {
  return p.causal ? length - p.tokens + token + 1 : length;
}

// Row of q, qPe and out [batch, tokens, heads, …].
MLXTS_FUNC Offset query_row(MLXTS_PARAMS HeadAttentionParams& p, Count sequence, Count token, Count head) {
  return (Offset(sequence) * p.tokens + token) * p.heads + p.firstHead + head;
}
// Row of keys and values [batch, rows, blockHeads, …], which have the cache's rows from `firstRow` on.
MLXTS_FUNC Offset key_row(MLXTS_PARAMS HeadAttentionParams& p, Count sequence, Count row, Count head) {
  return (Offset(sequence) * p.rows + row - p.firstRow) * p.blockHeads + head;
}
// Where a row's softmax and sums begin in `running` [batch, tokens, blockHeads, runningStride].
MLXTS_FUNC Offset running_row(MLXTS_PARAMS HeadAttentionParams& p, Count sequence, Count token, Count head) {
  return ((Offset(sequence) * p.tokens + token) * p.blockHeads + head) * p.runningStride;
}

}  // namespace mlxts
