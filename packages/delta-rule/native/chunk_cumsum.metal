#include "chunk_cumsum.params.h"
#include "chunk_metal.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kAhead = 8;  // gates that are on their way at once

// A thread has one chunk of one head; neighbors have neighboring heads.
kernel void chunk_cumsum_f32(device const float* g [[buffer(CHUNK_CUMSUM_G)]],
                             device const Index* cuSeqlens [[buffer(CHUNK_CUMSUM_CU_SEQLENS)]],
                             device const uchar* mask [[buffer(CHUNK_CUMSUM_MASK)]],
                             device float* sum [[buffer(CHUNK_CUMSUM_SUM)]],
                             device float* sumLow [[buffer(CHUNK_CUMSUM_SUM_LOW)]],
                             constant ChunkCumsumParams& p [[buffer(CHUNK_CUMSUM_PARAMS)]],
                             device MlxtsFault* fault [[buffer(CHUNK_CUMSUM_FAULT)]],
                             uint position [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const bool packed = p.present & CHUNK_CUMSUM_HAS_CU_SEQLENS, masked = p.present & CHUNK_CUMSUM_HAS_MASK;
  const Indices cuts = {cuSeqlens, packed};
  if (!packed_right(cuts, p.sequences, p.tokens, {fault, lane}, CHUNK_CUMSUM_FAULT_CU_SEQLENS)) return;
  const uint head = position % p.heads, slot = position / p.heads;
  const uint chunks = slots_of(p, packed), row = slot / chunks;
  if (row >= (packed ? 1 : p.sequences)) return;
  const ChunkPlace place = chunk_place(p, cuts, slot % chunks, chunks, head, row);
  const uint rows = place.rows;
  const ulong start = place.token * p.heads + head;
  float hi = 0.0f, lo = 0.0f;
  for (uint i = 0; i < rows; i += kAhead) {
    float ahead[kAhead];
    MLXTS_UNROLL
    for (uint j = 0; j < kAhead; ++j) {
      const uint at = min(i + j, rows - 1);
      const bool skipped = masked && mask[place.token + at] == 0;
      ahead[j] = skipped ? neutral_gate(p.gateFactor) : g[start + at * p.heads];
    }
    MLXTS_UNROLL
    for (uint j = 0; j < kAhead; ++j) {
      if (i + j >= rows) continue;
      // Two-sum: `lo` collects what each addition to `hi` rounds away.
      const float x = log_decay(ahead[j], p.gateFactor), s = hi + x, back = s - hi;
      lo += (hi - (s - back)) + (x - back);
      hi = s;
      sum[start + (i + j) * p.heads] = hi;
      if (p.present & CHUNK_CUMSUM_HAS_SUM_LOW) sumLow[start + (i + j) * p.heads] = lo;
    }
  }
}
