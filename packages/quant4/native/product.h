// What the matrix products share: dtypes as functions on runs of elements, the matrices of a batch, scales in f32.
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
// The same of elements that may begin at any byte: none is read as a T where it lies.
template <typename T>
void widen_any_byte(const void* from, float* to, size_t n) {
#if defined(__AVX512F__)
  widen_run<T>(from, to, n);  // its last loads are masked ones
#else
  const size_t whole = n / kLanes * kLanes;
  widen_run<T>(from, to, whole);
  if (whole == n) return;
  T rest[kLanes];
  memcpy(rest, static_cast<const uint8_t*>(from) + whole * sizeof(T), (n - whole) * sizeof(T));
  convert_row(rest, n - whole, to + whole);
#endif
}
template <typename T>
void narrow_run(const float* from, void* to, size_t n) {
  convert_row(from, n, static_cast<T*>(to));
}

// What a thread has prepared last for a dispatch, in scratch: which rows of x, by a number of the kernel's own. Every
// call asks for it, whatever it does then: what earlier calls have not set is undefined.
template <typename Prepared>
Prepared& prepared_in(const Launch& l, uint32_t* words) {
  auto& prepared = *reinterpret_cast<Prepared*>(words);
  if (!l.scratchKept) prepared.rows = ~uint64_t(0);
  return prepared;
}


// The dtype of scales and biases.
enum class ScaleType : uint32_t { f32, f16, bf16 };
template <typename S>
inline constexpr ScaleType kScaleType =
    std::is_same_v<S, float> ? ScaleType::f32 : std::is_same_v<S, f16> ? ScaleType::f16 : ScaleType::bf16;
// Scales whose dtype is asked for each time they are read.
struct AnyScale;
template <typename S>
MLXTS_INLINE size_t bytes_of(ScaleType type) {
  if constexpr (!std::is_same_v<S, AnyScale>) return sizeof(S);
  return type == ScaleType::f32 ? 4 : 2;
}

// The first n of kLanes scales that may begin at any byte, or all where there are more; missing ones are 0.
template <typename S>
MLXTS_INLINE vf32 load_scales(const uint8_t* p, uint32_t n) {
  const S* scales = reinterpret_cast<const S*>(p);
  if (n >= uint32_t(kLanes)) return load(scales);
#if defined(__AVX512F__)
  return load_partial(scales, int(n));
#else
  S some[kLanes] = {};
  memcpy(some, p, n * sizeof(S));
  return load(some);
#endif
}
template <typename S>
MLXTS_INLINE vf32 load_scales(ScaleType type, const uint8_t* p, uint32_t n) {
  if constexpr (!std::is_same_v<S, AnyScale>) return load_scales<S>(p, n);
  if (type == ScaleType::bf16) return load_scales<bf16>(p, n);
  return type == ScaleType::f16 ? load_scales<f16>(p, n) : load_scales<float>(p, n);
}

struct Types {
  Widen x, scales;
  void (*out)(const float* from, void* to, size_t n);
  size_t xBytes, scaleBytes, outBytes;
  ScaleType scaleType;
  bool bf16x, bf16out;
};

// Limbs of one byte that x is multiplied in: bf16 results lose nothing by bf16 x of 15 bits in units of the largest of
// a group; f16 results do. In whole numbers of a byte, one.
MLXTS_INLINE uint32_t limbs_of(const Types& t, bool bytes) { return bytes ? 1 : t.bf16x && t.bf16out ? 2 : 3; }

template <typename X, typename S, typename O>
inline constexpr Types kTypes = {widen_run<X>,  widen_any_byte<S>, narrow_run<O>,
                                 sizeof(X),     sizeof(S),         sizeof(O),
                                 kScaleType<S>, std::is_same_v<X, bf16>, std::is_same_v<O, bf16>};

// The matrices of a product.
struct Product {
  const uint8_t *x, *weight, *scales, *biases;
  uint8_t* out;
  const uint8_t* bias;  // linear bias, if there is one
  size_t biasBytes;     // of an element
  Widen widenBias;      // null: there is none
};

// A block of rows of W: its product, and its first row.
struct BlockAt {
  const Product* product;  // null: none
  uint32_t row0;
};

// Matrix number `part` of those that a kernel multiplies one x with: it declares x, then weights, scales and biases of
// each, first.
inline Product joint_product(const Launch& l, int part, int out) {
  Product m{};
  m.x = l.buffer<const uint8_t>(QUANTIZED_MATMUL_X);
  m.weight = l.buffer<const uint8_t>(QUANTIZED_MATMUL_WEIGHT + 3 * part);
  m.scales = l.buffer<const uint8_t>(QUANTIZED_MATMUL_SCALES + 3 * part);
  m.biases = l.buffer<const uint8_t>(QUANTIZED_MATMUL_BIASES + 3 * part);
  m.out = l.buffer<uint8_t>(out);
  return m;
}

// The matrix number `q` of the weights, with x and out from their beginnings on; of kernels with several weights, of
// number `part`. All products declare x, the weights, the scales and the biases first: the indices of one are those of
// all.
template <typename P>
Product product_of(const Launch& l, const Types& t, const P& p, uint32_t bits, uint64_t q, int out, int part = 0) {
  const uint64_t elements = uint64_t(p.rows) * p.cols, groups = elements / p.groupSize;
  Product m = joint_product(l, part, out);
  m.weight += q * (elements / 8) * bits;
  m.scales += q * groups * t.scaleBytes;
  m.biases += q * groups * t.scaleBytes;
  return m;
}

// The matrices of a batch index.
template <typename P>
Product product_at(const Launch& l, const Types& t, const P& p, uint32_t bits, uint64_t z, bool transpose) {
  const uint64_t i0 = z % p.batch0, i1 = z / p.batch0 % p.batch1, i2 = z / p.batch0 / p.batch1;
  const uint64_t x = i0 * p.xStride0 + i1 * p.xStride1 + i2 * p.xStride2;
  const uint64_t inner = transpose ? p.cols : p.rows, outer = transpose ? p.rows : p.cols;
  constexpr Widen widen[] = {nullptr, widen_run<float>, widen_run<f16>, widen_run<bf16>};
  Product m = product_of(l, t, p, bits, i0 * p.qStride0 + i1 * p.qStride1 + i2 * p.qStride2, QUANTIZED_MATMUL_OUT);
  m.x += x * p.m * inner * t.xBytes;
  m.out += z * p.m * outer * t.outBytes;
  m.bias = l.buffer<const uint8_t>(QUANTIZED_MATMUL_BIAS);
  m.biasBytes = p.biasDtype == 1 ? 4 : 2;
  m.widenBias = widen[p.biasDtype];
  return m;
}

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

#if defined(__AMX_BF16__)
// Products of bf16 take subnormal numbers for 0: whether bf16 x is far from them, and from infinity. n is a multiple of
// 32.
inline bool fits_bf16_dot(const uint8_t* x, size_t n) {
  // Sizes as bits: 0, or from 2^-80 on and below 2^126.
  const __m512i least = _mm512_set1_epi16(0x1781), most = _mm512_set1_epi16(0x7e80 - 0x1781);
  __mmask32 wrong = 0;
  for (size_t i = 0; i < n; i += 32) {
    const __m512i size = _mm512_and_si512(_mm512_loadu_si512(x + 2 * i), _mm512_set1_epi16(0x7fff));
    wrong |= _mm512_mask_cmpge_epu16_mask(_mm512_test_epi16_mask(size, size), _mm512_sub_epi16(size, least), most);
  }
  return wrong == 0;
}
#endif

// The largest of n numbers, which are whole vectors, without its sign: as bits, which grow with numbers; NaN is above
// infinity.
MLXTS_INLINE int32_t largest_size(const float* x, size_t n) {
  vi32 sizes = {};
  for (size_t i = 0; i < n; i += kLanes) {
    const vi32 size = as_i32(load(x + i)) & 0x7fffffff;
    sizes = size > sizes ? size : sizes;
  }
  int32_t most = 0;
  for (int l = 0; l < kLanes; ++l) most = sizes[l] > most ? sizes[l] : most;
  return most;
}

// Whether numbers of this size at most are whole numbers of a power of two: 0, or from 2^-80 on and below 2^100.
MLXTS_INLINE bool has_unit(int32_t size) {
  return size == 0 || (size >= (127 - 80) << 23 && size < (127 + 100) << 23);
}

// Whether limbs hold a row of x; n is a multiple of 32.
inline bool fits_limbs(const Types& t, const uint8_t* x, size_t n) {
  alignas(64) float some[128];
  int32_t most = 0;
  for (size_t i = 0; i < n; i += 128) {
    const size_t count = n - i < 128 ? n - i : 128;
    t.x(x + i * t.xBytes, some, count);
    const int32_t size = largest_size(some, count);
    most = size > most ? size : most;
  }
  return has_unit(most);
}

}  // namespace mlxts

// X(X, S, O, bits) for every dtype of x, of the scales and of the output, and every width.
#define MLXTS_PRODUCT_WIDTHS(K, X, S, O) K(X, S, O, 4) K(X, S, O, 8)
#define MLXTS_PRODUCT_OUTPUTS(K, X, S) \
  MLXTS_PRODUCT_WIDTHS(K, X, S, f32) MLXTS_PRODUCT_WIDTHS(K, X, S, f16) MLXTS_PRODUCT_WIDTHS(K, X, S, bf16)
#define MLXTS_PRODUCT_SCALES(K, X) \
  MLXTS_PRODUCT_OUTPUTS(K, X, f32) MLXTS_PRODUCT_OUTPUTS(K, X, f16) MLXTS_PRODUCT_OUTPUTS(K, X, bf16)
#define MLXTS_PRODUCT_VARIANTS(K) \
  MLXTS_PRODUCT_SCALES(K, f32) MLXTS_PRODUCT_SCALES(K, f16) MLXTS_PRODUCT_SCALES(K, bf16)
