// One threadgroup: a block of elements.
#include "elementwise.h"
#include "sigmoid_gate.params.h"

using namespace mlxts;

namespace {

template <typename T>
void sigmoid_gate(const Launch& l) {
  const auto& p = l.args<SigmoidGateParams>();
  elementwise<SIGMOID_GATE_BLOCK>(l, l.buffer<const T>(SIGMOID_GATE_X), l.buffer<const T>(SIGMOID_GATE_GATE), l.buffer<T>(SIGMOID_GATE_OUT),
              p.tail, [](vf32 x, vf32 gate) { return times_sigmoid<T>(x, splat(1.0f), gate); });
}

}  // namespace

MLXTS_KERNEL(sigmoid_gate_f32, sigmoid_gate<float>)
MLXTS_KERNEL(sigmoid_gate_f16, sigmoid_gate<f16>)
MLXTS_KERNEL(sigmoid_gate_bf16, sigmoid_gate<bf16>)
