// One threadgroup: a block of elements.
#include "elementwise.h"
#include "swiglu.params.h"

using namespace mlxts;

namespace {

template <typename T>
void swiglu(const Launch& l) {
  const auto& p = l.args<SwigluParams>();
  elementwise<SWIGLU_BLOCK>(l, l.buffer<const T>(SWIGLU_GATE), l.buffer<const T>(SWIGLU_UP), l.buffer<T>(SWIGLU_OUT), p.tail,
              [](vf32 gate, vf32 up) { return times_sigmoid<T>(gate, up, gate); });
}

}  // namespace

MLXTS_KERNEL(swiglu_f32, swiglu<float>)
MLXTS_KERNEL(swiglu_f16, swiglu<f16>)
MLXTS_KERNEL(swiglu_bf16, swiglu<bf16>)
