// One threadgroup: the gates of one chunk of one sequence, token after token, a gate per lane.
#include "chunk_cumsum.params.h"
#include "chunk_place.h"
#include "cumulative_gates.h"

using namespace mlxts;

namespace {

int32_t chunk_cumsum(const Launch& l) {
  const auto& p = l.args<ChunkCumsumParams>();
  const float* g = l.buffer<const float>(CHUNK_CUMSUM_G);
  const Indices cu_seqlens = l.indices(CHUNK_CUMSUM_CU_SEQLENS);
  const uint8_t* mask = l.buffer<const uint8_t>(CHUNK_CUMSUM_MASK);
  float* G = l.buffer<float>(CHUNK_CUMSUM_CUMULATIVE_GATE);
  float* G_low = l.buffer<float>(CHUNK_CUMSUM_CUMULATIVE_GATE_LOW);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_CUMSUM_FAULT_CU_SEQLENS)) return 1;
  const size_t heads = p.heads, slots = l.threadgroups[0];
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace chunk = chunk_place(p, cu_seqlens, group % slots, slots, 0, group / slots);
    for (size_t i = 0; i < chunk.rows; ++i) {
      const size_t at = (chunk.token + i) * heads, before = at - heads;
      const bool skipped = mask && !mask[chunk.token + i];
      // Adds a vector of gates from head h on to what the row above has; `read` and `write` are of such vectors.
      const auto add = [&](size_t h, auto read, auto write) {
        CompensatedSum<vf32> sum = {};
        if (i > 0) sum.high = read(G + before + h);
        if (i > 0 && G_low) sum.low = read(G_low + before + h);
        sum.add(skipped ? vf32{} : log_decay(read(g + at + h), p.gateFactor));
        write(G + at + h, sum.high);
        if (G_low) write(G_low + at + h, sum.low);
      };
      for_lanes(
          heads,
          [&](size_t h) {
            add(h, [](const float* from) { return load(from); }, [](float* to, vf32 v) { store(to, v); });
          },
          [&](size_t h, int n) {
            add(
                h, [n](const float* from) { return load_partial(from, n); },
                [n](float* to, vf32 v) { store_partial(to, v, n); });
          });
    }
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_cumsum_f32, chunk_cumsum)
