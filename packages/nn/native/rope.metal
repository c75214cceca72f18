#include "metal_kernel.h"
#include "rope.params.h"

using namespace metal;
using namespace mlxts;

// The bits of 2/pi behind the binary point, after 160 zeros.
constant uint kTwoOverPi[12] = {0,          0,          0,          0,          0,          0xa2f9836e,
                                0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

// |frequency| in quarter turns, modulo 4, in units of 2^-62: the 24 bits of its significand times those 96 bits of 2/pi
// that its exponent makes count: bits before them give multiples of 4, bits behind them next to nothing. In integers,
// since a GPU has no double.
METAL_FUNC ulong quarter_turns(uint bits) {
  const uint exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  const uint significand = exponent == 0 ? fraction : fraction | 0x800000;
  const uint first = max(exponent, 1u) + 8, word = first / 32, shift = first % 32;
  uint window[3];
  for (uint i = 0; i < 3; ++i)
    window[i] = kTwoOverPi[word + i] << shift | kTwoOverPi[word + i + 1] >> 1 >> (31 - shift);
  const ulong low = ulong(significand) * window[2];
  const ulong middle = ulong(significand) * window[1] + (low >> 32);
  const uint high = significand * window[0] + uint(middle >> 32);
  return ulong(high) << 32 | uint(middle);
}

// cos and sin of position * frequency: the product is exact modulo whole turns; its distance r from the nearest quarter
// turn, |r| <= pi/4, goes into Taylor polynomials (remainders below 2e-9).
METAL_FUNC float2 cos_sin(int position, float frequency) {
  const uint bits = as_type<uint>(frequency);
  ulong angle = quarter_turns(bits) * (position < 0 ? 0u - uint(position) : uint(position));
  if ((position < 0) != (bits >> 31 != 0)) angle = 0 - angle;
  const uint quadrant = uint((angle + (ulong(1) << 61)) >> 62);
  angle -= ulong(quadrant) << 62;
  const float turns = fma(float(int(angle >> 32)), 9.31322575e-10f, float(uint(angle)) * 2.16840434e-19f);
  // pi/2 in two parts; infinite and NaN frequencies have no angle.
  const float exact = fma(turns, 1.57079637f, turns * -4.37113883e-08f);
  const float r = (bits & 0x7f800000) == 0x7f800000 ? as_type<float>(0x7fc00000u) : exact;
  const float s = r * r;
  float p = 2.75573188e-06f;
  p = fma(p, s, -0.000198412701f);
  p = fma(p, s, 0.00833333377f);
  p = fma(p, s, -0.166666672f);
  const float sin_r = fma(p * s, r, r);
  p = -2.755732e-07f;
  p = fma(p, s, 2.48015876e-05f);
  p = fma(p, s, -0.00138888892f);
  p = fma(p, s, 0.0416666679f);
  p = fma(p, s, -0.5f);
  const float cos_r = fma(p, s, 1.0f);
  const float cosine = quadrant & 1 ? sin_r : cos_r, sine = quadrant & 1 ? cos_r : sin_r;
  return float2((quadrant + 1) & 2 ? -cosine : cosine, quadrant & 2 ? -sine : sine);
}

// A threadgroup rotates some heads of one token; a thread computes the cosine and sine of a pair once and rotates the
// pair in its heads. The first angle is made before the wait for x.
template <typename T>
kernel void rope(device const T* x [[buffer(ROPE_X)]], device const Index* positions [[buffer(ROPE_POSITIONS)]],
                 device const float* frequencies [[buffer(ROPE_INVERSE_FREQUENCIES)]],
                 device T* out [[buffer(ROPE_OUT)]], constant RopeParams& p [[buffer(ROPE_PARAMS)]],
                 uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                 uint2 position [[thread_position_in_threadgroup]], uint2 size [[threads_per_threadgroup]]) {
  const uint firstHead = group.y * size.y + position.y, heads = groups.y * size.y;
  const ulong start = ulong(group.x) * p.heads * p.dim;
  const int place = read_index(positions, group.x);
  uint pair = position.x;
  float2 turn = pair < p.pairs ? cos_sin(place, frequencies[pair]) : float2(0.0f);
  wait_for_kernels(as_type<uint>(turn.x) ^ as_type<uint>(turn.y));
  const bool in_place = x == out;
  x += start, out += start;
  while (pair < p.pairs) {
    const uint first = p.interleaved ? 2 * pair : pair, second = p.interleaved ? first + 1 : first + p.pairs;
    for (uint head = firstHead; head < p.heads; head += heads) {
      const ulong at = ulong(head) * p.dim;
      const float a = float(x[at + first]), b = float(x[at + second]);
      out[at + first] = T(a * turn.x - b * turn.y);
      out[at + second] = T(b * turn.x + a * turn.y);
    }
    pair += size.x;
    if (pair < p.pairs) turn = cos_sin(place, frequencies[pair]);
  }
  if (in_place) return;
  for (uint head = firstHead; head < p.heads; head += heads) {
    const ulong at = ulong(head) * p.dim;
    for (uint i = 2 * p.pairs + position.x; i < p.dim; i += size.x) out[at + i] = x[at + i];
  }
}

#define ROPE(name, T) template [[host_name("rope_" name)]] [[kernel]] decltype(rope<T>) rope<T>;
ROPE("f32", float)
ROPE("f16", half)
ROPE("bf16", bfloat)
