#include "fused_post_attn_triple_norm.params.h"
#include "fused_rows_metal.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void fused_post_attn_triple_norm(device const T* hidden [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_HIDDEN)]],
                                        device const T* attn [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_ATTN)]],
                                        device const T* weightPost [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_POST)]],
                                        device const T* weightA [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_A)]],
                                        device const T* weightB [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_B)]],
                                        device const T* weightC [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_C)]],
                                        device T* res [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_RES)]],
                                        device T* outA [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_OUT_A)]],
                                        device T* outB [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_OUT_B)]],
                                        device T* outC [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_OUT_C)]],
                                        constant FusedPostAttnTripleNormParams& p
                                        [[buffer(FUSED_POST_ATTN_TRIPLE_NORM_PARAMS)]],
                                        threadgroup uchar* memory [[threadgroup(0)]],
                                        uint3 group [[threadgroup_position_in_grid]],
                                        uint3 position [[thread_position_in_threadgroup]],
                                        uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  const auto scratch = scratch_of(memory, p);
  const RowElements<T> x = {attn + start};
  const RowNorm<T> norm = row_norm<T>(squares_of(x, p.dim, t), scratch.partial, p, t);
  const bool stored = p.present & FUSED_POST_ATTN_TRIPLE_NORM_HAS_RES;
  const NormedSum<T, RowElements<T>> sum = {
      x, norm, {weightPost, bool(p.f32Weights & 1)}, hidden + start, stored ? res + start : res, stored};
  const RowNorm<T> second = row_norm<T>(squares_of(sum, p.dim, t), scratch.second, p, t);
  const ThreeOutputs<T> outputs = {
      {{weightA, bool(p.f32Weights & 2)}, {weightB, bool(p.f32Weights & 4)}, {weightC, bool(p.f32Weights & 8)}},
      {outA + start, outB + start, outC + start}};
  outputs.store(SumAgain<T, RowElements<T>>{sum}, second, p.dim, t);
}

#define FUSED_POST_ATTN_TRIPLE_NORM(name, T)                                                                      \
  template [[host_name("fused_post_attn_triple_norm_" name)]] [[kernel]] decltype(fused_post_attn_triple_norm<T>) \
      fused_post_attn_triple_norm<T>;
FUSED_POST_ATTN_TRIPLE_NORM("f32", float)
FUSED_POST_ATTN_TRIPLE_NORM("f16", half)
FUSED_POST_ATTN_TRIPLE_NORM("bf16", bfloat)
