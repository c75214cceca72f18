// One threadgroup: one row. Scales, biases and codes are worked out in f32 and rounded only when stored.
#include "cpu_kernel.h"
#include "decode.h"
#include "quantize.params.h"

using namespace mlxts;

namespace {

// Nearest integer of 0 ≤ x ≤ 255, ties to even or up.
MLXTS_INLINE vf32 nearest(vf32 x, bool tiesUp) {
  const vf32 even = in_register(x + splat(0x1.8p23f)) - splat(0x1.8p23f);
  return tiesUp ? select(x - even == splat(0.5f), even + splat(1.0f), even) : even;
}

template <typename T>
bool is_finite(T value) {
  return std::fabs(to_f32(value)) <= 0x1.fffffep127f;
}

template <typename T>
int32_t fail_at_first(const Launch& l, const T* w, uint32_t cols) {
  size_t i = 0;
  while (is_finite(w[i])) ++i;
  const float value = to_f32(w[i]);
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return l.fail(QUANTIZE_FAULT_NOT_FINITE, bits, uint32_t(i / cols), uint32_t(i % cols));
}

template <typename T, int Bits>
int32_t quantize(const Launch& l) {
  const auto& p = l.args<QuantizeParams>();
  const T* w = l.buffer<const T>(QUANTIZE_W);
  uint8_t* weight = l.buffer<uint8_t>(QUANTIZE_WEIGHT);
  T* scales = l.buffer<T>(QUANTIZE_SCALES);
  T* biases = l.buffer<T>(QUANTIZE_BIASES);
  constexpr float n = (1 << Bits) - 1;
  const size_t groupsPerRow = p.cols / p.groupSize;
  for (uint64_t g = l.begin * groupsPerRow; g < l.end * groupsPerRow; ++g) {
    const T* from = w + g * p.groupSize;  // [groupSize]
    vf32 low = splat(INFINITY), high = splat(p.gpu ? 0.0f : -INFINITY);
    vi32 finite = splat_i32(-1);
    for (uint32_t i = 0; i < p.groupSize; i += kLanes) {
      const vf32 v = load(from + i);
      low = min(low, v);
      high = max(high, v);
      finite &= (as_i32(v) & 0x7f800000) != 0x7f800000;
    }
    float least = low[0], most = high[0];
    bool ok = true;
    for (int i = 0; i < kLanes; ++i) {
      least = low[i] < least ? low[i] : least;
      most = high[i] > most ? high[i] : most;
      ok = ok && finite[i];
    }
    if (!ok) return fail_at_first(l, w, p.cols);

    float scale = std::fmax((most - least) / n, 1e-7f), bias = 0;
    const bool negative = std::fabs(least) > std::fabs(most);
    if (!negative) scale = -scale;
    const float edge = negative ? least : most;
    const float q0 = p.gpu ? std::round(edge / scale) : std::rint(edge / scale);
    if (q0 != 0) {
      scale = edge / q0;
      bias = edge;
    }
    scales[g] = from_f32<T>(scale);
    biases[g] = from_f32<T>(bias);

    uint8_t codes[128];
    for (uint32_t i = 0; i < p.groupSize; i += kLanes) {
      // Clamped before rounding: the bounds are integers, so it is the same, and NaN (0/0) becomes 0.
      const vf32 x = min(max((load(from + i) - splat(bias)) / splat(scale), splat(0)), splat(n));
      const vu8 bytes = __builtin_convertvector(__builtin_convertvector(nearest(x, p.gpu), vi32), vu8);
      memcpy(codes + i, &bytes, sizeof bytes);
    }
    uint8_t* to = weight + g * p.groupSize * Bits / 8;
    constexpr uint32_t perByte = 8 / Bits;
    for (uint32_t i = 0; i < p.groupSize; i += perByte) {
      uint8_t byte = 0;
      for (uint32_t j = 0; j < perByte; ++j) byte |= uint8_t(codes[i + j] << (j * Bits));
      to[i / perByte] = byte;
    }
  }
  return 0;
}

}  // namespace

#define QUANTIZE(T)                               \
  MLXTS_KERNEL(quantize_##T##_b2, quantize<T, 2>) \
  MLXTS_KERNEL(quantize_##T##_b4, quantize<T, 4>) \
  MLXTS_KERNEL(quantize_##T##_b8, quantize<T, 8>)
QUANTIZE(f32)
QUANTIZE(f16)
QUANTIZE(bf16)
