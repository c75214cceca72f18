// One threadgroup: some rows.
#include "fused_rows.h"
#include "rms_norm_triple.params.h"

using namespace mlxts;

namespace {

template <typename T>
void rms_norm_triple(const Launch& l) {
  const auto& p = l.args<RmsNormTripleParams>();
  for_rows(l, p, [&](uint64_t row) {
    const uint64_t start = row * p.dim;
    const T* x = l.buffer<const T>(RMS_NORM_TRIPLE_X) + start;  // [dim]
    const ThreeOutputs<T> outputs = {
        {{l.buffer<const void>(RMS_NORM_TRIPLE_WEIGHT_A), bool(p.f32Weights & 1)},
         {l.buffer<const void>(RMS_NORM_TRIPLE_WEIGHT_B), bool(p.f32Weights & 2)},
         {l.buffer<const void>(RMS_NORM_TRIPLE_WEIGHT_C), bool(p.f32Weights & 4)}},
        {l.buffer<T>(RMS_NORM_TRIPLE_OUT_A) + start, l.buffer<T>(RMS_NORM_TRIPLE_OUT_B) + start,
         l.buffer<T>(RMS_NORM_TRIPLE_OUT_C) + start}};
    outputs.store(x, row_norm<T>(sum_of_squares_asking(x, p.dim, outputs.out[0]), p), p.dim, x + p.dim);
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_triple_f32, rms_norm_triple<float>)
MLXTS_KERNEL(rms_norm_triple_f16, rms_norm_triple<f16>)
MLXTS_KERNEL(rms_norm_triple_bf16, rms_norm_triple<bf16>)
