#include "chunk_cumsum.params.h"
#include "chunk_place.h"
#include "compensated_sum.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kAhead = CHUNK_CUMSUM_AHEAD;

// ln(decay) where the gate is the decay itself; 0 becomes what exp() takes to 0.
METAL_FUNC float log_decay(float gate) { return gate > 0.0f ? max(precise::log(gate), -104.0f) : -104.0f; }

// A thread has one chunk of one head; neighbors have neighboring heads.
kernel void chunk_cumsum_f32(device const float* g [[buffer(CHUNK_CUMSUM_G)]],
                             device const Index* cuSeqlens [[buffer(CHUNK_CUMSUM_CU_SEQLENS)]],
                             device const uchar* mask [[buffer(CHUNK_CUMSUM_MASK)]],
                             device float* G [[buffer(CHUNK_CUMSUM_CUMULATIVE_GATE)]],
                             device float* GLow [[buffer(CHUNK_CUMSUM_CUMULATIVE_GATE_LOW)]],
                             constant ChunkCumsumParams& p [[buffer(CHUNK_CUMSUM_PARAMS)]],
                             device MlxtsFault* fault [[buffer(CHUNK_CUMSUM_FAULT)]],
                             uint position [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const bool packed = p.present & CHUNK_CUMSUM_HAS_CU_SEQLENS, masked = p.present & CHUNK_CUMSUM_HAS_MASK;
  const Indices cuts = {cuSeqlens, packed};
  if (!packed_right(cuts, p.sequences, p.tokens, {fault, lane}, CHUNK_CUMSUM_FAULT_CU_SEQLENS)) return;
  const uint head = position % p.heads, chunk = position / p.heads;
  const uint slots = slots_of(packed, p.sequences, p.tokens, p.chunkLength), row = chunk / slots;
  if (row >= (packed ? 1 : p.sequences)) return;
  const ChunkPlace place = chunk_place(p, cuts, chunk % slots, slots, head, row);
  const uint rows = place.rows;
  const ulong start = place.token * p.heads + head;
  CompensatedSum<float> sum = {0.0f, 0.0f};
  for (uint i = 0; i < rows; i += kAhead) {
    // No question stands between loads, nor in what is done for each gate.
    float ahead[kAhead];
    MLXTS_UNROLL for (uint j = 0; j < kAhead; ++j) ahead[j] = g[start + min(i + j, rows - 1) * p.heads];
    if (masked) {
      MLXTS_UNROLL for (uint j = 0; j < kAhead; ++j) {
        if (mask[place.token + min(i + j, rows - 1)] == 0) ahead[j] = neutral_gate(p.gateFactor);
      }
    }
    if (p.gateFactor != 0.0f) {
      MLXTS_UNROLL for (uint j = 0; j < kAhead; ++j) ahead[j] *= p.gateFactor;
    } else {
      MLXTS_UNROLL for (uint j = 0; j < kAhead; ++j) ahead[j] = log_decay(ahead[j]);
    }
    MLXTS_UNROLL for (uint j = 0; j < kAhead; ++j) {
      if (i + j >= rows) continue;
      sum.add(ahead[j]);
      G[start + (i + j) * p.heads] = sum.high;
      if (p.present & CHUNK_CUMSUM_HAS_CUMULATIVE_GATE_LOW) GLow[start + (i + j) * p.heads] = sum.low;
    }
  }
}
