#include "chunk_cumsum.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kAhead = 8;  // gates that are on their way at once

// A thread has one chunk of one head; neighbours have neighbouring heads.
kernel void chunk_cumsum_f32(device const float* g [[buffer(CHUNK_CUMSUM_G)]],
                             device float* sum [[buffer(CHUNK_CUMSUM_SUM)]],
                             device float* sumLow [[buffer(CHUNK_CUMSUM_SUM_LOW)]],
                             constant ChunkCumsumParams& p [[buffer(CHUNK_CUMSUM_PARAMS)]],
                             uint position [[thread_position_in_grid]]) {
  const uint chunks = (p.tokens + p.chunkLength - 1) / p.chunkLength;
  const uint head = position % p.heads, chunk = position / p.heads % chunks, sequence = position / p.heads / chunks;
  if (sequence >= p.sequences) return;
  const uint rows = min(p.chunkLength, p.tokens - chunk * p.chunkLength);
  const ulong start = (ulong(sequence) * p.tokens + chunk * p.chunkLength) * p.heads + head;
  float hi = 0.0f, lo = 0.0f;
  for (uint i = 0; i < rows; i += kAhead) {
    float ahead[kAhead];
    MLXTS_UNROLL
    for (uint j = 0; j < kAhead; ++j) ahead[j] = g[start + min(i + j, rows - 1) * p.heads];
    MLXTS_UNROLL
    for (uint j = 0; j < kAhead; ++j) {
      if (i + j >= rows) continue;
      // Two-sum: `lo` collects what each addition to `hi` rounds away.
      const float x = ahead[j], s = hi + x, back = s - hi;
      lo += (hi - (s - back)) + (x - back);
      hi = s;
      sum[start + (i + j) * p.heads] = hi;
      if (p.present & CHUNK_CUMSUM_HAS_SUM_LOW) sumLow[start + (i + j) * p.heads] = lo;
    }
  }
}
