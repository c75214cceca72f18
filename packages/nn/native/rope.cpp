// One threadgroup: one token. The cosines and sines of its angles are computed once; every head is rotated by them.
#include "cpu_kernel.h"
#include "rope.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

typedef double vf64 __attribute__((vector_size(kLanes * 8)));
typedef int64_t vi64 __attribute__((vector_size(kLanes * 8)));
typedef uint64_t vu64 __attribute__((vector_size(kLanes * 4)));  // two neighboring lanes of a vf32 to one

// cos and sin of position * frequency: the angle and its distance r from the nearest k * pi/2 in f64, |r| <= pi/4, then
// Taylor polynomials in f32 (remainders below 2e-9).
MLXTS_INLINE void cos_sin(double position, vf32 frequency, vf32& cosine, vf32& sine) {
  const vf64 angle = __builtin_convertvector(frequency, vf64) * position;
  // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits.
  const vf64 shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p52;
  const vf64 k = shifted - 0x1.8p52;
  const vf64 r64 = (angle - k * 0x1.921fb544p0) - k * 0x1.0b4611a626331p-34;
  const vi32 quadrant = __builtin_convertvector(reinterpret_cast<vi64>(shifted) & 3, vi32);
  const vf32 r = __builtin_convertvector(r64, vf32);
  const vf32 s = r * r;
  vf32 p = splat(0x1.71de3ap-19f);
  p = fma(p, s, splat(-0x1.a01a02p-13f));
  p = fma(p, s, splat(0x1.111112p-7f));
  p = fma(p, s, splat(-0x1.555556p-3f));
  const vf32 sin_r = fma(p * s, r, r);
  p = splat(-0x1.27e4fcp-22f);
  p = fma(p, s, splat(0x1.a01a02p-16f));
  p = fma(p, s, splat(-0x1.6c16c2p-10f));
  p = fma(p, s, splat(0x1.555556p-5f));
  p = fma(p, s, splat(-0.5f));
  const vf32 cos_r = fma(p, s, splat(1.0f));
  const vi32 odd = (quadrant & 1) != 0;
  const vi32 sin_sign = (quadrant & 2) << 30, cos_sign = ((quadrant + 1) & 2) << 30;
  cosine = as_f32(as_i32(select(odd, sin_r, cos_r)) ^ cos_sign);
  sine = as_f32(as_i32(select(odd, cos_r, sin_r)) ^ sin_sign);
}

MLXTS_INLINE vf32 swap_neighbors(vf32 v) {
  const vu64 bits = reinterpret_cast<vu64>(v);
  return reinterpret_cast<vf32>((bits >> 32) | (bits << 32));
}

void cosines_and_sines(double position, const float* frequencies, size_t pairs, float* cosines, float* sines) {
  for_lanes(
      pairs,
      [&](size_t i) {
        vf32 c, s;
        cos_sin(position, load(frequencies + i), c, s);
        store(cosines + i, c);
        store(sines + i, s);
      },
      [&](size_t i, int n) {
        vf32 c, s;
        cos_sin(position, load_partial(frequencies + i, n), c, s);
        store_partial(cosines + i, c, n);
        store_partial(sines + i, s, n);
      });
}

// In place, for elements whose neighbors form a pair: each cosine twice, and each sine as -sin, sin.
void interleave(float* cosines, float* sines, size_t pairs) {
  for (size_t i = pairs; i-- > 0;) {
    const float c = cosines[i], s = sines[i];
    cosines[2 * i] = cosines[2 * i + 1] = c;
    sines[2 * i] = -s;
    sines[2 * i + 1] = s;
  }
}

// Rotates the pairs (2i, 2i + 1) of a head by interleaved cosines and sines.
template <typename T>
MLXTS_INLINE void rotate_neighbors(const T* from, T* to, size_t pairs, const float* cosines, const float* sines) {
  const auto rotate = [](vf32 v, vf32 c, vf32 s) { return fma(v, c, swap_neighbors(v) * s); };
  for_lanes(
      2 * pairs, [&](size_t i) { store(to + i, rotate(load(from + i), load(cosines + i), load(sines + i))); },
      [&](size_t i, int n) {
        const vf32 c = load_partial(cosines + i, n), s = load_partial(sines + i, n);
        store_partial(to + i, rotate(load_partial(from + i, n), c, s), n);
      });
}

// Rotates the pairs (i, i + pairs) of a head.
template <typename T>
MLXTS_INLINE void rotate_halves(const T* from, T* to, size_t pairs, const float* cosines, const float* sines) {
  for_lanes(
      pairs,
      [&](size_t i) {
        const vf32 a = load(from + i), b = load(from + pairs + i), c = load(cosines + i), s = load(sines + i);
        store(to + i, a * c - b * s);
        store(to + pairs + i, b * c + a * s);
      },
      [&](size_t i, int n) {
        const vf32 a = load_partial(from + i, n), b = load_partial(from + pairs + i, n);
        const vf32 c = load_partial(cosines + i, n), s = load_partial(sines + i, n);
        store_partial(to + i, a * c - b * s, n);
        store_partial(to + pairs + i, b * c + a * s, n);
      });
}

template <typename T>
void rope(const Launch& l) {
  const auto& p = l.args<RopeParams>();
  const auto scratch = scratch_of(l, p);
  const T* x = l.buffer<const T>(ROPE_X);
  const Indices positions = l.indices(ROPE_POSITIONS);
  const float* frequencies = l.buffer<const float>(ROPE_INVERSE_FREQUENCIES);
  T* out = l.buffer<T>(ROPE_OUT);
  const uint32_t pairs = p.pairs, rotated = 2 * pairs;
  for (uint64_t token = l.begin; token < l.end; ++token) {
    cosines_and_sines(positions.read(token), frequencies, pairs, scratch.cosines, scratch.sines);
    if (p.interleaved) interleave(scratch.cosines, scratch.sines, pairs);
    for (uint32_t head = 0; head < p.heads; ++head) {
      const uint64_t offset = (token * p.heads + head) * p.dim;
      const T* from = x + offset;  // [dim]
      T* to = out + offset;        // [dim]
      if (p.interleaved)
        rotate_neighbors(from, to, pairs, scratch.cosines, scratch.sines);
      else
        rotate_halves(from, to, pairs, scratch.cosines, scratch.sines);
      if (to != from) memcpy(to + rotated, from + rotated, (p.dim - rotated) * sizeof(T));
    }
  }
}

}  // namespace

MLXTS_KERNEL(rope_f32, rope<float>)
MLXTS_KERNEL(rope_f16, rope<f16>)
MLXTS_KERNEL(rope_bf16, rope<bf16>)
