#include "elementwise_metal.h"
#include "elementwise_mul.params.h"

using namespace metal;
using namespace mlxts;

struct Product {
  float4 operator()(float4 a, float4 b) const { return a * b; }
};

template <typename T>
kernel void elementwise_mul(device const T* a [[buffer(ELEMENTWISE_MUL_A)]],
                            device const T* b [[buffer(ELEMENTWISE_MUL_B)]],
                            device T* out [[buffer(ELEMENTWISE_MUL_OUT)]],
                            constant ElementwiseMulParams& p [[buffer(ELEMENTWISE_MUL_PARAMS)]],
                            uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                            uint index [[thread_position_in_threadgroup]]) {
  elementwise<ELEMENTWISE_MUL_BLOCK>(a, b, out, p.tail, group, groups, index, Product());
}

#define ELEMENTWISE_MUL(name, T) \
  template [[host_name("elementwise_mul_" name)]] [[kernel]] decltype(elementwise_mul<T>) elementwise_mul<T>;
ELEMENTWISE_MUL("f32", float)
ELEMENTWISE_MUL("f16", half)
ELEMENTWISE_MUL("bf16", bfloat)
