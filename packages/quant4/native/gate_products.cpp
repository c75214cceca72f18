// One threadgroup: a block of elements.
#include "gate_products.params.h"
#include "cpu_kernel.h"
#include "gated_unit.h"

using namespace mlxts;

namespace {

template <typename T>
void gate_products(const Launch& l) {
  const auto& p = l.args<GateProductsParams>();
  const size_t begin = l.begin * GATE_PRODUCTS_BLOCK;
  const size_t end = l.end * GATE_PRODUCTS_BLOCK - (l.end == l.threadgroups[0] ? GATE_PRODUCTS_BLOCK - p.tail : 0);
  gated_units(l.buffer<const T>(GATE_PRODUCTS_GATES) + begin, l.buffer<const T>(GATE_PRODUCTS_UPS) + begin,
              l.buffer<T>(GATE_PRODUCTS_OUT) + begin, end - begin);
}

}  // namespace

MLXTS_KERNEL(gate_products_f32, gate_products<float>)
MLXTS_KERNEL(gate_products_f16, gate_products<f16>)
MLXTS_KERNEL(gate_products_bf16, gate_products<bf16>)
