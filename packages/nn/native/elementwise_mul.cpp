// One threadgroup: a block of elements.
#include "elementwise.h"
#include "elementwise_mul.params.h"

using namespace mlxts;

namespace {

template <typename T>
void elementwise_mul(const Launch& l) {
  const auto& p = l.args<ElementwiseMulParams>();
  elementwise<ELEMENTWISE_MUL_BLOCK>(l, l.buffer<const T>(ELEMENTWISE_MUL_A), l.buffer<const T>(ELEMENTWISE_MUL_B),
                                     l.buffer<T>(ELEMENTWISE_MUL_OUT), p.tail, [](vf32 a, vf32 b) { return a * b; });
}

}  // namespace

MLXTS_KERNEL(elementwise_mul_f32, elementwise_mul<float>)
MLXTS_KERNEL(elementwise_mul_f16, elementwise_mul<f16>)
MLXTS_KERNEL(elementwise_mul_bf16, elementwise_mul<bf16>)
