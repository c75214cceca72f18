// One threadgroup: one row.
#include "dequantize.params.h"
#include "word.h"

using namespace metal;
using namespace mlxts;

template <typename S, typename O, int Bits>
kernel void dequantize(device const uint* weight [[buffer(DEQUANTIZE_WEIGHT)]],
                       device const S* scales [[buffer(DEQUANTIZE_SCALES)]],
                       device const S* biases [[buffer(DEQUANTIZE_BIASES)]], device O* out [[buffer(DEQUANTIZE_OUT)]],
                       constant DequantizeParams& p [[buffer(DEQUANTIZE_PARAMS)]],
                       uint row [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                       uint threads [[threads_per_threadgroup]]) {
  decode_row<S, O, Bits>(weight, scales, biases, row, out + ulong(row) * p.cols, p.cols, p.groupSize, index, threads);
}

#define DEQUANTIZE(S, O, bits)                 \
  template [[host_name("dequantize_" #S "_" #O \
                       "_b" #bits)]] [[kernel]] decltype(dequantize<S, O, bits>) dequantize<S, O, bits>;
MLXTS_DECODED(DEQUANTIZE)
