// One simdgroup: v and beta of one head of one token, copied, or zeros if the mask skips the token.
#include "mask_values.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void mask_values(device const T* v [[buffer(MASK_VALUES_V)]],
                        device const float* beta [[buffer(MASK_VALUES_BETA)]],
                        device const uchar* mask [[buffer(MASK_VALUES_MASK)]],
                        device T* v_kept [[buffer(MASK_VALUES_V_KEPT)]],
                        device float* beta_kept [[buffer(MASK_VALUES_BETA_KEPT)]],
                        constant MaskValuesParams& p [[buffer(MASK_VALUES_PARAMS)]],
                        uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y * p.heads + group.x;
  const bool kept = mask[group.y] != 0;
  const ulong begin = ulong(row) * p.valueDim;
  for (uint i = lane; i < p.valueDim; i += kSimd) v_kept[begin + i] = kept ? v[begin + i] : T(0.0f);
  if (lane == 0) beta_kept[row] = kept ? beta[row] : 0.0f;
}

#define MASK_VALUES(name, T) \
  template [[host_name("mask_values_" name)]] [[kernel]] decltype(mask_values<T>) mask_values<T>;
MASK_VALUES("f32", float)
MASK_VALUES("f16", half)
MASK_VALUES("bf16", bfloat)
