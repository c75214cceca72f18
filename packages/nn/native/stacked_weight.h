// Matrices of one size in a weight: one after the other, or each where an index tensor says, which may also say that it is
// elsewhere. C++ and Metal both compile this.
#pragma once
#include "gathered_rows.h"

namespace mlxts {

struct StackedWeight {
  Offset size;  // of a matrix
  Count matrices, startEnd;
  Indices starts;

  // Whether all starts are right. To be asked as GatheredPairs::right.
  MLXTS_FUNC bool right(FaultSearch search, uint32_t code) const {
    return !starts || indices_right(starts, matrices, startEnd, search, code, kElsewhere);
  }
  // Whether the weight holds a matrix.
  MLXTS_FUNC bool holds(Count matrix) const { return !starts || uint32_t(starts.read(matrix)) != kElsewhere; }
  // The first element of a matrix: one that has all others behind it, whatever the starts are.
  MLXTS_FUNC Offset begin(Count matrix) const {
    if (!starts) return matrix * size;
    const uint32_t start = uint32_t(starts.read(matrix));
    return start < startEnd ? start : 0;
  }
};

}  // namespace mlxts
