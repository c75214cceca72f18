// Codes of MLX affine matrices: w = scale·q + bias, with one scale and one bias for a group of 32, 64 or 128 neighbors of
// a row. A row is a little-endian stream of codes, low bits first; nothing assumes alignment. Two ways to read them: kLanes
// neighboring columns as they are (codes_at), or kLanes words, a column of each at a time, centered (Codes).
#pragma once
#include "simd.h"

namespace mlxts {

typedef uint8_t vu8 __attribute__((vector_size(kLanes)));

MLXTS_INLINE uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  memcpy(&word, p, 4);
  return word;
}

// The codes of columns i … i + kLanes − 1 of a row, as numbers.
template <int Bits>
MLXTS_INLINE vf32 codes_at(const uint8_t* row, size_t i) {
  const uint8_t* p = row + i * Bits / 8;
  if constexpr (Bits == 8) {
    vu8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(v, vi32), vf32);
  } else if constexpr (kLanes == 4) {
    // Masked in place and scaled by a power of two: no shifts by lane.
    uint32_t bits = 0;
    memcpy(&bits, p, kLanes * Bits / 8);
    constexpr int32_t mask = (1 << Bits) - 1;
    vi32 masks;
    vf32 units;
    for (int l = 0; l < kLanes; ++l) {
      masks[l] = mask << (l * Bits);
      units[l] = 1.0f / float(1 << (l * Bits));
    }
    return __builtin_convertvector(splat_i32(int32_t(bits)) & masks, vf32) * units;
  } else {
    vu32 shifts, words;
    for (int l = 0; l < kLanes; ++l) shifts[l] = uint32_t(l * Bits) % 32;
    if constexpr (kLanes * Bits <= 32) {
      uint32_t bits = 0;
      memcpy(&bits, p, kLanes * Bits / 8);
      words = bits - vu32{};
    } else {
      const vu32 low = load_word(p) - vu32{}, high = load_word(p + 4) - vu32{};
      vu32 upper;
      for (int l = 0; l < kLanes; ++l) upper[l] = l * Bits >= 32 ? ~0u : 0u;
      words = (low & ~upper) | (high & upper);
    }
    return __builtin_convertvector(reinterpret_cast<vi32>((words >> shifts) & ((1u << Bits) - 1)), vf32);
  }
}

// Codes in a word, and in a vector of words, whose lane l holds columns l·32/Bits … of a chunk.
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

// Centered code j of each word, as numbers: q − 8 or q − 128, so that scale·Σqx and bias·Σx do not cancel:
// w = scale·(q − c) + (bias + scale·c). `flip` goes once over the words before.
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

// The scale of each lane of a chunk, from the scales of groups.
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
  // The scale of each lane of a chunk from the scales of its groups, 1 to 4, in S; no others are read.
  template <typename S>
  MLXTS_INLINE vf32 of_groups(const S* scales, size_t groups) const {
#if defined(__AVX2__)
    const __m128 four = load_groups(scales, groups);
#if defined(__AVX512F__)
    return reinterpret_cast<vf32>(
        _mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), _mm512_broadcast_f32x4(four)));
#else
    return reinterpret_cast<vf32>(_mm256_permutevar8x32_ps(_mm256_set_m128(four, four), reinterpret_cast<__m256i>(index)));
#endif
#else
    (void)groups;
    return splat(to_f32(*scales));
#endif
  }

#if defined(__AVX2__)
 private:
  static MLXTS_INLINE __m128 load_groups(const float* scales, size_t groups) {
    return _mm_maskload_ps(scales, _mm_cmpgt_epi32(_mm_set1_epi32(int(groups)), _mm_setr_epi32(0, 1, 2, 3)));
  }
  // By way of a register: short stores followed by a longer load would wait for each other.
  template <typename S>
  static MLXTS_INLINE __m128 load_groups(const S* scales, size_t groups) {
    uint64_t bits = scales->bits;
    uint32_t two;
    if (groups == 4) {
      memcpy(&bits, scales, 8);
    } else if (groups > 1) {
      memcpy(&two, scales, 4);
      bits = groups == 3 ? two | uint64_t(scales[2].bits) << 32 : two;
    }
    const __m128i four = _mm_cvtsi64_si128(int64_t(bits));
    if constexpr (std::is_same_v<S, f16>)
      return _mm_cvtph_ps(four);
    else
      return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(four), 16));
  }
#endif
};

// The scales of the lanes of one chunk after another, from those of the kLanes groups that begin with the first chunk.
template <int Bits>
class ChunkScales {
 public:
#if defined(__AVX2__)
  MLXTS_INLINE explicit ChunkScales(uint32_t shift)
      : shift_(int32_t(shift)), groups_(columns_ >> shift_), step_(splat_i32(kChunk<Bits>) >> shift_) {}
  MLXTS_INLINE vf32 of(vf32 scales) const {
#if defined(__AVX512F__)
    return reinterpret_cast<vf32>(
        _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(groups_), reinterpret_cast<__m512>(scales)));
#else
    return reinterpret_cast<vf32>(
        _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(scales), reinterpret_cast<__m256i>(groups_)));
#endif
  }
  MLXTS_INLINE void next() {
    if constexpr (kChunk<Bits> % kMostGroup == 0) {
      groups_ += step_;
    } else {
      columns_ += splat_i32(kChunk<Bits>);
      groups_ = columns_ >> shift_;
    }
  }

 private:
  static constexpr int kMostGroup = 128;
  vi32 columns_ = lane_index() * kPerWord<Bits>;
  int32_t shift_;
  vi32 groups_, step_;
#else
  MLXTS_INLINE explicit ChunkScales(uint32_t shift) : shift_(int32_t(shift)) {}
  MLXTS_INLINE vf32 of(vf32 scales) const { return splat(scales[column_ >> shift_]); }
  MLXTS_INLINE void next() { column_ += kChunk<Bits>; }

 private:
  int32_t shift_, column_ = 0;
#endif
};

// The bias that goes with centered codes.
template <int Bits>
MLXTS_INLINE vf32 centered_bias(const float* scales, const float* biases) {
  return fma(splat(kCenter<Bits>), load(scales), load(biases));
}

}  // namespace mlxts
