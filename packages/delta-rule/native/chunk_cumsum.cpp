// One threadgroup: the gates of one chunk of one sequence, a head per lane.
#include "chunk_cumsum.params.h"
#include "cpu_kernel.h"
#include "simd.h"

using namespace mlxts;

namespace {

void chunk_cumsum(const Launch& l) {
  const auto& p = l.args<ChunkCumsumParams>();
  const float* g = l.buffer<const float>(CHUNK_CUMSUM_G);
  float* sum = l.buffer<float>(CHUNK_CUMSUM_SUM);
  float* low = l.buffer<float>(CHUNK_CUMSUM_SUM_LOW);
  const size_t heads = p.heads;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t chunk = group % l.threadgroups[0], sequence = group / l.threadgroups[0];
    const size_t begin = chunk * p.chunkLength;
    const size_t rows = p.tokens - begin < p.chunkLength ? p.tokens - begin : p.chunkLength;
    const size_t at = (sequence * p.tokens + begin) * heads;
    // Two-sum: `lo` collects what each addition to `hi` rounds away.
    const auto scan = [&](size_t h, auto read, auto write) {
      vf32 hi = {}, lo = {};
      for (size_t i = 0; i < rows; ++i) {
        const vf32 x = read(g + at + i * heads + h);
        const vf32 s = hi + x, back = s - hi;
        lo += (hi - (s - back)) + (x - back);
        hi = s;
        write(sum + at + i * heads + h, hi);
        if (low) write(low + at + i * heads + h, lo);
      }
    };
    for_lanes(
        heads,
        [&](size_t h) {
          scan(h, [](const float* from) { return load(from); }, [](float* to, vf32 v) { store(to, v); });
        },
        [&](size_t h, int n) {
          scan(
              h, [n](const float* from) { return load_partial(from, n); },
              [n](float* to, vf32 v) { store_partial(to, v, n); });
        });
  }
}

}  // namespace

MLXTS_KERNEL(chunk_cumsum_f32, chunk_cumsum)
