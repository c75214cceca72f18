#include "elementwise_metal.h"
#include "swiglu.params.h"

using namespace metal;
using namespace mlxts;

struct Gated {
  float4 operator()(float4 gate, float4 up) const { return times_sigmoid(gate, up, gate); }
};

template <typename T>
kernel void swiglu(device const T* gate [[buffer(SWIGLU_GATE)]], device const T* up [[buffer(SWIGLU_UP)]],
                   device T* out [[buffer(SWIGLU_OUT)]], constant SwigluParams& p [[buffer(SWIGLU_PARAMS)]],
                   uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
  elementwise<SWIGLU_BLOCK>(gate, up, out, p.tail, group, groups, index, Gated());
}

#define SWIGLU(name, T) template [[host_name("swiglu_" name)]] [[kernel]] decltype(swiglu<T>) swiglu<T>;
SWIGLU("f32", float)
SWIGLU("f16", half)
SWIGLU("bf16", bfloat)
