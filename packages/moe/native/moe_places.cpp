// One threadgroup: a block of the order.
#include <algorithm>

#include "cpu_kernel.h"
#include "moe_places.params.h"

using namespace mlxts;

namespace {

int32_t moe_places(const Launch& l) {
  const auto& p = l.args<MoePlacesParams>();
  const Indices order = l.indices(MOE_PLACES_ORDER);
  int32_t* places = l.buffer<int32_t>(MOE_PLACES_PLACES);
  const uint64_t end = std::min<uint64_t>(l.end * MOE_PLACES_BLOCK, p.pairs);
  for (uint64_t i = l.begin * MOE_PLACES_BLOCK; i < end; ++i) {
    const uint32_t pair = uint32_t(order.read(i));
    if (pair >= p.pairs) return l.fail(MOE_PLACES_FAULT_ORDER, pair, uint32_t(i));
    places[pair] = int32_t(i);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_places_i32, moe_places)
