// Where the rows of a head lie: of x and out [tokens, heads, dim], and of the weight [heads · headRows, rank].
#pragma once
#include "portable.h"

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
  return (Offset(head) * p.headRows + p.firstRow + row) * p.rank;
}

}  // namespace mlxts
