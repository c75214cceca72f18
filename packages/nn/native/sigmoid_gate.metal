#include "elementwise_metal.h"
#include "sigmoid_gate.params.h"

using namespace metal;
using namespace mlxts;

struct Gated {
  float4 operator()(float4 x, float4 gate) const { return times_sigmoid(x, float4(1.0f), gate); }
};

template <typename T>
kernel void sigmoid_gate(device const T* x [[buffer(SIGMOID_GATE_X)]],
                         device const T* gate [[buffer(SIGMOID_GATE_GATE)]], device T* out [[buffer(SIGMOID_GATE_OUT)]],
                         constant SigmoidGateParams& p [[buffer(SIGMOID_GATE_PARAMS)]],
                         uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                         uint index [[thread_position_in_threadgroup]]) {
  elementwise<SIGMOID_GATE_BLOCK>(x, gate, out, p.tail, group, groups, index, Gated());
}

#define SIGMOID_GATE(name, T) \
  template [[host_name("sigmoid_gate_" name)]] [[kernel]] decltype(sigmoid_gate<T>) sigmoid_gate<T>;
SIGMOID_GATE("f32", float)
SIGMOID_GATE("f16", half)
SIGMOID_GATE("bf16", bfloat)
