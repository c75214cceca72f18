// One threadgroup: one query row. Its pieces are put together in order: a piece counts exp(its max − the overall max).
#include "attention.h"
#include "sdpa_merge.params.h"

using namespace mlxts;

namespace {

template <typename X>
void sdpa_merge(const Launch& l) {
  const auto& p = l.args<SdpaMergeParams>();
  const Indices lengths = l.indices(SDPA_MERGE_LENGTHS);
  const size_t dim = p.dim, share = p.heads / p.kvHeads, rows = p.tokens * share;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t head = group % p.heads, t = group / p.heads % p.tokens, b = group / p.heads / p.tokens;
    // The length that the pieces were made for was right; this one may have changed, and has as many pieces at most.
    const size_t length = uint32_t(lengths.read(b));
    const size_t all = (length + piece_keys(length) - 1) / piece_keys(length), pieces = all < p.pieces ? all : p.pieces;
    const size_t stride = rows * (dim + 2);
    const float* first = l.buffer<const float>(SDPA_MERGE_PARTIAL) +
                         ((b * p.kvHeads + head / share) * p.pieces * rows + t * share + head % share) * (dim + 2);
    float top = -INFINITY;
    for (size_t i = 0; i < pieces; ++i) top = first[i * stride] > top ? first[i * stride] : top;
    // A piece of which nothing was visible has the factor 0 and sums of 0.
    float factors[kMaxPieces], sum = 0;
    for (size_t i = 0; i < pieces; ++i) {
      factors[i] = first[i * stride] == -INFINITY ? 0 : exp(splat(first[i * stride] - top))[0];
      sum += first[i * stride + 1] * factors[i];
    }
    const vf32 inverse = splat(1 / sum);
    X* out = l.buffer<X>(SDPA_MERGE_OUT) + group * dim;
    const auto merged = [&](size_t d, auto get) {
      vf32 value = {};
      for (size_t i = 0; i < pieces; ++i) value = fma(get(first + i * stride + 2 + d), splat(factors[i]), value);
      return pieces == 0 ? vf32{} : value * inverse;
    };
    for_lanes(
        dim, [&](size_t d) { store(out + d, merged(d, [](const float* at) { return load(at); })); },
        [&](size_t d, int n) {
          store_partial(out + d, merged(d, [n](const float* at) { return load_partial(at, n); }), n);
        });
  }
}

}  // namespace

MLXTS_KERNEL(sdpa_merge_f32, sdpa_merge<float>)
MLXTS_KERNEL(sdpa_merge_f16, sdpa_merge<f16>)
MLXTS_KERNEL(sdpa_merge_bf16, sdpa_merge<bf16>)
