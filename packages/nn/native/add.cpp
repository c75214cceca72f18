// One threadgroup: a block of elements.
#include "add.params.h"
#include "elementwise.h"

using namespace mlxts;

namespace {

template <typename T>
void add(const Launch& l) {
  const auto& p = l.args<AddParams>();
  elementwise<ADD_BLOCK>(l, l.buffer<const T>(ADD_A), l.buffer<const T>(ADD_B), l.buffer<T>(ADD_OUT), p.tail,
              [](vf32 a, vf32 b) { return a + b; });
}

}  // namespace

MLXTS_KERNEL(add_f32, add<float>)
MLXTS_KERNEL(add_f16, add<f16>)
MLXTS_KERNEL(add_bf16, add<bf16>)
