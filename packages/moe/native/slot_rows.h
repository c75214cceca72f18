// Where the rows of tokens' slots lie in y.
#pragma once
#include "portable.h"

namespace mlxts {

// Rows in the order of the pairs (token, slot), or where there is an order, in that one. `places` is its inverse if it
// is a permutation.
struct SlotRows {
  Indices order, places;
  Count pairs;

  // Whether the order has this pair.
  MLXTS_FUNC bool right(Count pair) const {
    if (!order) return true;
    const Count place = Count(uint32_t(places.read(pair)));
    return place < pairs && Count(uint32_t(order.read(place))) == pair;
  }
  // The row of a pair, below `pairs` whatever others write meanwhile.
  MLXTS_FUNC Count row(Count pair) const {
    if (!order) return pair;
    const Count place = Count(uint32_t(places.read(pair)));
    return place < pairs ? place : 0;
  }
};

}  // namespace mlxts
