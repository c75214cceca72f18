// One threadgroup: a query row. Its pieces are added in order, each multiplied by exp(its maximum − the largest maximum).
#include "kv_cache.h"
#include "query_rows.h"
#include "sdpa_merge.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename X>
void sdpa_merge(const Launch& l) {
  const auto& p = l.args<SdpaMergeParams>();
  const Indices lengths = l.indices(SDPA_MERGE_LENGTHS);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const MergedRow row = merged_row(group / p.heads / p.tokens, group / p.heads % p.tokens, group % p.heads, p);
    const size_t pieces = pieces_of(length_at(lengths, row.sequence, 0, p.capacity), p.mostPieces), stride = row.stride;
    const float* first = l.buffer<const float>(SDPA_MERGE_PARTIAL) + row.first;
    float maximum = -INFINITY;
    for (size_t i = 0; i < pieces; ++i) maximum = first[i * stride] > maximum ? first[i * stride] : maximum;
    // A piece of which nothing was visible has the factor 0, and sums of 0.
    float factors[SDPA_PIECES_MAX_PIECES], denominator = 0;
    for (size_t i = 0; i < pieces; ++i) {
      factors[i] = first[i * stride] == -INFINITY ? 0 : exp(splat(first[i * stride] - maximum))[0];
      denominator += first[i * stride + 1] * factors[i];
    }
    const vf32 inverse = splat(1 / denominator);
    X* out = l.buffer<X>(SDPA_MERGE_OUT) + group * p.dim;
    const auto merged = [&](size_t d, auto get) {
      vf32 value = {};
      for (size_t i = 0; i < pieces; ++i)
        value = fma(get(first + i * stride + SDPA_PIECES_SOFTMAX_SIZE + d), splat(factors[i]), value);
      return pieces == 0 ? vf32{} : value * inverse;
    };
    for_lanes(
        p.dim, [&](size_t d) { store(out + d, merged(d, [](const float* at) { return load(at); })); },
        [&](size_t d, int n) {
          store_partial(out + d, merged(d, [n](const float* at) { return load_partial(at, n); }), n);
        });
  }
}

}  // namespace

MLXTS_KERNEL(sdpa_merge_f32, sdpa_merge<float>)
MLXTS_KERNEL(sdpa_merge_f16, sdpa_merge<f16>)
MLXTS_KERNEL(sdpa_merge_bf16, sdpa_merge<bf16>)
