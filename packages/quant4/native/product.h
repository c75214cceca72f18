// What the matrix products share: dtypes as functions on runs of elements, the matrices of a batch, codes in f32.
// Codes are centered (q − 8, q − 128), so that scale·Σqx and bias·Σx do not cancel: w = scale·(q − c) + (bias +
// scale·c).
#pragma once
#include "cpu_kernel.h"
#include "decode.h"
#include "quantized_matmul.params.h"

namespace mlxts {

using Widen = void (*)(const void* from, float* to, size_t n);

template <typename T>
void widen_run(const void* from, float* to, size_t n) {
  convert_row(static_cast<const T*>(from), n, to);
}
template <typename T>
void narrow_run(const float* from, void* to, size_t n) {
  convert_row(from, n, static_cast<T*>(to));
}

struct Types {
  Widen x, scales;
  void (*out)(const float* from, void* to, size_t n);
  size_t xBytes, scaleBytes, outBytes;
  bool bf16x;
};

template <typename X, typename S, typename O>
inline constexpr Types kTypes = {widen_run<X>, widen_run<S>, narrow_run<O>,          sizeof(X),
                                 sizeof(S),    sizeof(O),    std::is_same_v<X, bf16>};

// The matrices of one batch index.
struct Product {
  const uint8_t *x, *weight, *scales, *biases;
  uint8_t* out;
  const uint8_t* bias;  // linear bias, if there is one
  size_t biasBytes;     // of an element
  Widen widenBias;      // null: there is none
};

// All products declare the same buffers and parameters: the indices of one are those of all.
template <typename P>
Product product_at(const Launch& l, const Types& t, const P& p, uint32_t bits, uint64_t z, bool transpose) {
  const uint64_t i0 = z % p.batch0, i1 = z / p.batch0 % p.batch1, i2 = z / p.batch0 / p.batch1;
  const uint64_t x = i0 * p.xStride0 + i1 * p.xStride1 + i2 * p.xStride2;
  const uint64_t q = i0 * p.qStride0 + i1 * p.qStride1 + i2 * p.qStride2;
  const uint64_t inner = transpose ? p.cols : p.rows, outer = transpose ? p.rows : p.cols;
  const uint64_t elements = uint64_t(p.rows) * p.cols, groups = elements / p.groupSize;
  constexpr Widen widen[] = {nullptr, widen_run<float>, widen_run<f16>, widen_run<bf16>};
  return {l.buffer<const uint8_t>(QUANTIZED_MATMUL_X) + x * p.m * inner * t.xBytes,
          l.buffer<const uint8_t>(QUANTIZED_MATMUL_WEIGHT) + q * (elements / 8) * bits,
          l.buffer<const uint8_t>(QUANTIZED_MATMUL_SCALES) + q * groups * t.scaleBytes,
          l.buffer<const uint8_t>(QUANTIZED_MATMUL_BIASES) + q * groups * t.scaleBytes,
          l.buffer<uint8_t>(QUANTIZED_MATMUL_OUT) + z * p.m * outer * t.outBytes,
          l.buffer<const uint8_t>(QUANTIZED_MATMUL_BIAS),
          size_t(p.biasDtype == 1 ? 4 : 2),
          widen[p.biasDtype]};
}

// Words of kLanes consecutive columns' words: lane l holds columns l·32/Bits … of a chunk.
template <int Bits>
inline constexpr int kPerWord = 32 / Bits;
template <int Bits>
inline constexpr int kChunk = kLanes * kPerWord<Bits>;
template <int Bits>
inline constexpr float kCenter = Bits == 4 ? 8 : 128;

MLXTS_INLINE vu32 load_words(const uint8_t* p) {
  vu32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
// The first n < kLanes words; missing ones read as 0.
MLXTS_INLINE vu32 load_words(const uint8_t* p, uint32_t n) {
#if defined(__AVX512F__)
  return reinterpret_cast<vu32>(_mm512_maskz_loadu_epi32(__mmask16((1u << n) - 1), p));
#elif defined(__AVX2__)
  const vi32 mask = lane_index() < splat_i32(int32_t(n));
  return reinterpret_cast<vu32>(
      _mm256_maskload_epi32(reinterpret_cast<const int*>(p), reinterpret_cast<__m256i>(mask)));
#else
  vu32 v = {};
  for (uint32_t i = 0; i < n; ++i) v[i] = load_word(p + 4 * i);
  return v;
#endif
}

// Centered code j of each word, as numbers. `flip` goes once over the words before.
template <int Bits>
struct Codes {
#if defined(__AVX512F__)
  vf32 table;
  MLXTS_INLINE Codes() {
    for (int i = 0; i < 16; ++i) table[i] = float(i - 8);
  }
#endif
  MLXTS_INLINE vu32 flip(vu32 words) const {
#if defined(__AVX512F__)
    if constexpr (Bits == 4) return words;
#endif
    return words ^ (Bits == 4 ? 0x88888888u : 0x80808080u);
  }
  MLXTS_INLINE vf32 at(vu32 words, int j) const {
#if defined(__AVX512F__)
    // The table's index is the low four bits: no masking.
    if constexpr (Bits == 4)
      return reinterpret_cast<vf32>(
          _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> uint32_t(4 * j)), reinterpret_cast<__m512>(table)));
#endif
    // Flipped, the top bit of a code is its sign.
    const vi32 high = reinterpret_cast<vi32>(words << uint32_t(32 - Bits - Bits * j));
    return __builtin_convertvector(high >> (32 - Bits), vf32);
  }
};

// The scale of each lane of a chunk, from the scales of its first groups (four can be read).
struct LaneScales {
  uint32_t shift;
#if defined(__AVX2__)
  vi32 index;
#endif
  template <int Bits>
  static MLXTS_INLINE LaneScales of(uint32_t groupSize) {
    LaneScales made;
    made.shift = uint32_t(__builtin_ctz(groupSize));
#if defined(__AVX2__)
    for (int l = 0; l < kLanes; ++l) made.index[l] = (l * kPerWord<Bits>) >> made.shift;
#endif
    return made;
  }
  MLXTS_INLINE vf32 at(const float* scales, size_t column) const {
    const float* p = scales + (column >> shift);
#if defined(__AVX512F__)
    return reinterpret_cast<vf32>(
        _mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), _mm512_broadcast_f32x4(_mm_loadu_ps(p))));
#elif defined(__AVX2__)
    return reinterpret_cast<vf32>(_mm256_permutevar8x32_ps(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(p)),
                                                           reinterpret_cast<__m256i>(index)));
#else
    return splat(*p);
#endif
  }
};

// `count` rows of scales and biases in f32, `stride` (≥ groups, a multiple of kLanes) apart, 0 beyond the groups.
inline void widen_scales(const Types& t, const Product& m, uint64_t row, uint32_t count, uint32_t groups, size_t stride,
                         float* scales, float* biases) {
  const size_t at = row * groups * t.scaleBytes;
  if (stride == groups) {
    t.scales(m.scales + at, scales, size_t(count) * groups);
    t.scales(m.biases + at, biases, size_t(count) * groups);
    return;
  }
  for (uint32_t r = 0; r < count; ++r) {
    const size_t from = at + size_t(r) * groups * t.scaleBytes;
    t.scales(m.scales + from, scales + r * stride, groups);
    t.scales(m.biases + from, biases + r * stride, groups);
    for (size_t g = groups; g < stride; ++g) scales[r * stride + g] = biases[r * stride + g] = 0;
  }
}

// The bias that goes with centered codes.
template <int Bits>
MLXTS_INLINE vf32 centered_bias(const float* scales, const float* biases) {
  return fma(splat(kCenter<Bits>), load(scales), load(biases));
}

#if defined(__AVX512BF16__)
// vdpbf16ps takes subnormal numbers for 0: whether x and its parts are far from them, and from infinity.
inline bool fits_bf16_dot(const Types& t, const uint8_t* x, size_t n) {
  alignas(64) float unit[128];
  vi32 ok = splat_i32(-1);
  for (size_t i = 0; i < n; i += 128) {
    const size_t count = n - i < 128 ? n - i : 128;
    t.x(x + i * t.xBytes, unit, count);
    for (size_t k = 0; k < count; k += kLanes) {
      const vf32 v = load(unit + k), size = max(v, -v);
      ok &= (v == splat(0)) | ((size > splat(0x1p-80f)) & (size < splat(0x1p126f)));
    }
  }
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(ok)) == 0xffff;
}
#endif

}  // namespace mlxts

// X(X, S, O, bits) for every dtype of x, of the scales and of the output, and every width.
#define MLXTS_PRODUCT_WIDTHS(K, X, S, O) K(X, S, O, 4) K(X, S, O, 8)
#define MLXTS_PRODUCT_OUTPUTS(K, X, S) \
  MLXTS_PRODUCT_WIDTHS(K, X, S, f32) MLXTS_PRODUCT_WIDTHS(K, X, S, f16) MLXTS_PRODUCT_WIDTHS(K, X, S, bf16)
#define MLXTS_PRODUCT_SCALES(K, X) \
  MLXTS_PRODUCT_OUTPUTS(K, X, f32) MLXTS_PRODUCT_OUTPUTS(K, X, f16) MLXTS_PRODUCT_OUTPUTS(K, X, bf16)
#define MLXTS_PRODUCT_VARIANTS(K) \
  MLXTS_PRODUCT_SCALES(K, f32) MLXTS_PRODUCT_SCALES(K, f16) MLXTS_PRODUCT_SCALES(K, bf16)
