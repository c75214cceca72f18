// One threadgroup: one token; every head is rotated by the token's row of the table.
#include "matrix_transpose.h"
#include "token_positions.h"

using namespace mlxts;

namespace {

// The pair (a, b) by an angle.
struct Angle {
  vf32 cosine, sine;

  MLXTS_INLINE void turn(vf32& a, vf32& b) const {
    const vf32 x = a;
    a = x * cosine - b * sine;
    b = x * sine + b * cosine;
  }
};

// Pairs i … of a head, `n` < kLanes of them or a whole vector: their first elements lie at a, a + step, …, and the
// second at b, b + step, ….
template <typename T>
void rotate_some(const T* a, const T* b, size_t step, int n, const float* cosines, const float* sines, T* to_a,
                 T* to_b) {
  for (int i = 0; i < n; ++i) {
    const float x = to_f32(a[i * step]), y = to_f32(b[i * step]);
    to_a[i * step] = from_f32<T>(x * cosines[i] - y * sines[i]);
    to_b[i * step] = from_f32<T>(x * sines[i] + y * cosines[i]);
  }
}

template <typename T>
MLXTS_INLINE void rotate_neighbors(const T* from, size_t pairs, const float* cosines, const float* sines, T* to) {
  for_lanes(
      pairs,
      [&](size_t i) {
        vf32 a = load(from + 2 * i), b = load(from + 2 * i + kLanes);
        deinterleave(a, b);
        Angle{load(cosines + i), load(sines + i)}.turn(a, b);
        store(to + 2 * i, interleave_low(a, b));
        store(to + 2 * i + kLanes, interleave_high(a, b));
      },
      [&](size_t i, int n) {
        rotate_some(from + 2 * i, from + 2 * i + 1, 2, n, cosines + i, sines + i, to + 2 * i, to + 2 * i + 1);
      });
}

template <typename T>
MLXTS_INLINE void rotate_halves(const T* from, size_t pairs, const float* cosines, const float* sines, T* to) {
  for_lanes(
      pairs,
      [&](size_t i) {
        vf32 a = load(from + i), b = load(from + pairs + i);
        Angle{load(cosines + i), load(sines + i)}.turn(a, b);
        store(to + i, a);
        store(to + pairs + i, b);
      },
      [&](size_t i, int n) {
        rotate_some(from + i, from + pairs + i, 1, n, cosines + i, sines + i, to + i, to + pairs + i);
      });
}

template <typename T>
int32_t rope_yarn(const Launch& l) {
  const auto& p = l.args<RopeYarnParams>();
  const TokenPositions positions = token_positions(l.indices(ROPE_YARN_POSITIONS), p);
  if (!positions.right(p.tokens, l)) return 1;
  const size_t pairs = p.pairs;
  for (uint64_t token = l.begin; token < l.end; ++token) {
    const float* cosines = l.buffer<const float>(ROPE_YARN_TABLE) + positions.at(token) * 2 * pairs;
    const float* sines = cosines + pairs;
    // Heads of one input, whose first rotated column is `from`.
    const auto rotate = [&](const T* from, size_t heads, size_t dim, T* to) {
      for (size_t head = 0; head < heads; ++head, from += dim, to += 2 * pairs)
        p.interleaved ? rotate_neighbors(from, pairs, cosines, sines, to)
                      : rotate_halves(from, pairs, cosines, sines, to);
    };
    const size_t heads = p.heads, kHeads = p.kHeads;
    rotate(l.buffer<const T>(ROPE_YARN_X) + token * heads * p.dim + p.first, heads, p.dim,
           l.buffer<T>(ROPE_YARN_OUT) + token * heads * 2 * pairs);
    if (kHeads > 0)
      rotate(l.buffer<const T>(ROPE_YARN_K) + token * kHeads * p.kDim + p.kFirst, kHeads, p.kDim,
             l.buffer<T>(ROPE_YARN_OUT_K) + token * kHeads * 2 * pairs);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(rope_yarn_f32, rope_yarn<float>)
MLXTS_KERNEL(rope_yarn_f16, rope_yarn<f16>)
MLXTS_KERNEL(rope_yarn_bf16, rope_yarn<bf16>)
