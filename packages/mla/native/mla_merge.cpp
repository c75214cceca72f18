// One threadgroup: a query row. Its pieces are added in order, each multiplied by exp(its maximum − the largest maximum).
#include "latent_pieces.h"
#include "mla_merge.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

void mla_merge(const Launch& l) {
  const auto& p = l.args<MlaMergeParams>();
  const Indices lengths = l.indices(MLA_MERGE_LENGTHS);
  float* lse = l.buffer<float>(MLA_MERGE_LSE);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t row = group % p.rows, sequence = group / p.rows;
    const size_t pieces = pieces_of(length_at(lengths, sequence, 0, p.capacity), p.mostPieces);
    const size_t stride = p.rows * partial_size(p.rank);
    const float* first =
        l.buffer<const float>(MLA_MERGE_PARTIAL) + partial_address(sequence, 0, p.pieces, row, p.rows, p.rank);
    float maximum = -INFINITY;
    for (size_t i = 0; i < pieces; ++i) maximum = first[i * stride] > maximum ? first[i * stride] : maximum;
    // A piece of which nothing was visible has the factor 0, and sums of 0.
    float factors[MLA_PIECES_MAX_PIECES], denominator = 0;
    for (size_t i = 0; i < pieces; ++i) {
      factors[i] = first[i * stride] == -INFINITY ? 0 : exp(splat(first[i * stride] - maximum))[0];
      denominator += first[i * stride + 1] * factors[i];
    }
    const bool none = denominator == 0;
    const vf32 inverse = splat(none ? 0 : 1 / denominator);
    // The logarithm takes numbers only.
    const bool number = denominator == denominator;
    if (lse) lse[group] = none ? -INFINITY : number ? maximum + log(splat(denominator))[0] : denominator;
    float* vc = l.buffer<float>(MLA_MERGE_VC) + group * p.rank;
    const auto merged = [&](size_t d, auto get) {
      vf32 value = {};
      for (size_t i = 0; i < pieces; ++i)
        value = fma(get(first + i * stride + MLA_PIECES_SOFTMAX_SIZE + d), splat(factors[i]), value);
      return none ? vf32{} : value * inverse;
    };
    for_lanes(
        p.rank, [&](size_t d) { store(vc + d, merged(d, [](const float* at) { return load(at); })); },
        [&](size_t d, int n) {
          store_partial(vc + d, merged(d, [n](const float* at) { return load_partial(at, n); }), n);
        });
  }
}

}  // namespace

MLXTS_KERNEL(mla_merge_f32, mla_merge)
