#include "add.params.h"
#include "elementwise_metal.h"

using namespace metal;
using namespace mlxts;

struct Sum {
  float4 operator()(float4 a, float4 b) const { return a + b; }
};

template <typename T>
kernel void add(device const T* a [[buffer(ADD_A)]], device const T* b [[buffer(ADD_B)]],
                device T* out [[buffer(ADD_OUT)]], constant AddParams& p [[buffer(ADD_PARAMS)]],
                uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                uint index [[thread_position_in_threadgroup]]) {
  elementwise<ADD_BLOCK>(a, b, out, p.tail, group, groups, index, Sum());
}

#define ADD(name, T) template [[host_name("add_" name)]] [[kernel]] decltype(add<T>) add<T>;
ADD("f32", float)
ADD("f16", half)
ADD("bf16", bfloat)
