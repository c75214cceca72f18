// Where the rows of a head lie: of x and out [tokens, heads, dim], and of the weight [heads · headRows, cols].
#pragma once
#include "cache_rows.h"

namespace mlxts {

template <typename P>
MLXTS_FUNC Offset head_x(MLXTS_PARAMS P& p, Count token, Count head) {
  return (Offset(token) * p.heads + head) * p.xDim;
}
template <typename P>
MLXTS_FUNC Offset head_out(MLXTS_PARAMS P& p, Count token, Count head) {
  return (Offset(token) * p.heads + head) * p.n;
}
template <typename P>
MLXTS_FUNC Offset head_weight(MLXTS_PARAMS P& p, Count head, Count row) {
  return (Offset(head) * p.headRows + p.firstRow + row) * p.cols;
}

// Of head_matmul: x [batch, xRows, xHeads, xDim], where heads may share it.
template <typename P>
MLXTS_FUNC Offset sequence_x(MLXTS_PARAMS P& p, Count sequence, Count token, Count head) {
  return ((Offset(sequence) * p.xRows + p.firstToken + token) * p.xHeads + (p.xHeads > 1 ? head : 0)) * p.xDim;
}
// How many of a sequence's tokens are multiplied: with `lengths`, those before its length.
template <typename P>
MLXTS_FUNC Count valid_tokens(MLXTS_PARAMS P& p, Indices lengths, Count sequence) {
  if (!lengths) return p.tokens;
  const Count length = length_at(lengths, sequence, 0, p.xRows);
  if (length <= p.firstToken) return 0;
  return length - p.firstToken < p.tokens ? length - p.firstToken : p.tokens;
}

}  // namespace mlxts
