#include "moe_places.params.h"
#include "portable.h"

using namespace metal;
using namespace mlxts;

// Reports the first entry out of range: one before position `last`, or `wrong`, which was read there.
METAL_FUNC void report_first(Indices order, uint pairs, uint wrong, uint last, device MlxtsFault* fault) {
  if (!claim_fault(fault)) return;
  uint first = 0, pair = wrong;
  while (first < last && (pair = uint(order.read(first))) < pairs) ++first;
  write_fault(fault, MOE_PLACES_FAULT_ORDER, first < last ? pair : wrong, first);
}

// One thread: one entry of the order.
kernel void moe_places_i32(device const Index* order_buffer [[buffer(MOE_PLACES_ORDER)]],
                           device int* places [[buffer(MOE_PLACES_PLACES)]],
                           constant MoePlacesParams& p [[buffer(MOE_PLACES_PARAMS)]],
                           device MlxtsFault* fault [[buffer(MOE_PLACES_FAULT)]], uint i [[thread_position_in_grid]]) {
  if (i >= p.pairs) return;
  const Indices order = {order_buffer, true};
  const uint pair = uint(order.read(i));
  if (pair < p.pairs)
    places[pair] = int(i);
  else
    report_first(order, p.pairs, pair, i, fault);
}
