// One threadgroup: the gates of one chunk of one sequence, row after row, a gate per lane.
#include "chunk.h"
#include "chunk_cumsum.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

int32_t chunk_cumsum(const Launch& l) {
  const auto& p = l.args<ChunkCumsumParams>();
  const float* g = l.buffer<const float>(CHUNK_CUMSUM_G);
  const Indices cu_seqlens = l.indices(CHUNK_CUMSUM_CU_SEQLENS);
  const uint8_t* mask = l.buffer<const uint8_t>(CHUNK_CUMSUM_MASK);
  float* sum = l.buffer<float>(CHUNK_CUMSUM_SUM);
  float* low = l.buffer<float>(CHUNK_CUMSUM_SUM_LOW);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_CUMSUM_FAULT_CU_SEQLENS)) return 1;
  const size_t heads = p.heads;
  const uint64_t slots = l.threadgroups[0];
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const Slot slot = slot_at(cu_seqlens, group, p.sequences, p.tokens, slots, p.chunkLength);
    const Chunks chunks(p, cu_seqlens, slot.sequence);
    const size_t first = chunks.begin + slot.chunk * p.chunkLength, rows = chunks.rows(slot.chunk, p.chunkLength);
    for (size_t i = 0; i < rows; ++i) {
      const size_t at = (first + i) * heads;
      const bool skipped = mask && !mask[first + i];
      // Two-sum: `low` collects what each addition to `sum` rounds away. The sums so far are those of the row above.
      const auto add = [&](size_t h, auto read, auto write) {
        const vf32 x = skipped ? vf32{} : log_decay(read(g + at + h), p.gateFactor);
        const vf32 hi = i == 0 ? vf32{} : read(sum + at - heads + h);
        const vf32 s = hi + x;
        write(sum + at + h, s);
        if (low) {
          const vf32 back = s - hi, lo = i == 0 ? vf32{} : read(low + at - heads + h);
          write(low + at + h, lo + ((hi - (s - back)) + (x - back)));
        }
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
