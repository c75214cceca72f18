// A threadgroup has a block of elements, a thread four.
#include "gate_products.params.h"
#include "metal_gated_unit.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void gate_products(device const T* gates [[buffer(GATE_PRODUCTS_GATES)]],
                          device const T* ups [[buffer(GATE_PRODUCTS_UPS)]], device T* out [[buffer(GATE_PRODUCTS_OUT)]],
                          constant GateProductsParams& p [[buffer(GATE_PRODUCTS_PARAMS)]],
                          uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                          uint index [[thread_position_in_threadgroup]]) {
  const ulong begin = ulong(group) * GATE_PRODUCTS_BLOCK;
  const uint count = group + 1 == groups ? p.tail : GATE_PRODUCTS_BLOCK, end = min(4 * index + 4, count);
  for (uint i = 4 * index; i < end; ++i) out[begin + i] = gated_unit(gates[begin + i], ups[begin + i]);
}

#define GATE_PRODUCTS(name, T) template [[host_name("gate_products_" name)]] [[kernel]] decltype(gate_products<T>) gate_products<T>;
GATE_PRODUCTS("f32", float)
GATE_PRODUCTS("f16", half)
GATE_PRODUCTS("bf16", bfloat)
