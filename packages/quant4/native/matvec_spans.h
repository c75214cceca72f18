// Products of rows of W with few rows of x (ordered_rows.h), whole or in spans of words: each row of W is read from
// memory once, the next rows being fetched meanwhile.
#pragma once
#include "limb_pairs_dot.h"
#include "limbs_dot.h"
#include "ordered_rows.h"

namespace mlxts {

// Of x: what stays in the first cache beside whole rows of W, and beside one of them; where it does not, what a part of
// a row of W is multiplied with.
constexpr size_t kWholeBytes = 24 << 10, kOneRowBytes = 32 << 10, kPartBytes = 8 << 10;

// What is fetched while R rows of a block are multiplied, whole or in parts of so many bytes of words.
template <int R>
FetchAhead ahead_of(const WeightRows& w, size_t part) {
  // The last of R whole rows begins with the first.
  const size_t words = part == w.count * 4 ? kFetchBytes + (R - 1) * w.rowBytes
                                           : (kFetchBytes / (R * part) + 1) * R * w.rowBytes;
  const ptrdiff_t scales = ptrdiff_t(words * w.scaleRowBytes / w.rowBytes);
  return {ptrdiff_t(words), scales, scales};
}

// dot(rows, sums, stride) for R rows of W at a time, the sums of row r from sums[r·stride] on; rows that are too few
// for that are multiplied one by one, R times each. Sums of row r of the block start at sums[r·m]. The struct itself
// moves over the rows and back: a copy of fields just written waits until they have left the processor.
template <int R, typename Dot>
MLXTS_INLINE void each_row(WeightRows& w, uint32_t count, size_t part, uint32_t m, vf32* sums, Dot dot) {
  if (kFarRows && w.nextBytes < w.rowBytes) {
    constexpr uint32_t kEach = kRows / kParts;
    const size_t words = R * w.rowBytes, scales = R * w.scaleRowBytes;
    for (uint32_t row = 0; row < kEach; ++row, w.skip(1)) {
      for (uint32_t part = 0; part < kParts; part += R) {
        dot(w, sums + (part * kEach + row) * m, kEach * m);
        w.words += words, w.scales += scales, w.biases += scales;
      }
      w.words -= kParts / R * words, w.scales -= kParts / R * scales, w.biases -= kParts / R * scales;
    }
    w.skip(-ptrdiff_t(kEach));
    return;
  }
  const FetchAhead next = w.ahead, within = ahead_of<R>(w, part);
  w.ahead = within;
  uint32_t left = count;
  for (; left >= R; left -= R, w.skip(R), sums += R * m) {
    if (left * w.rowBytes <= size_t(within.words)) w.ahead = within + next;
    dot(w, sums, m);
  }
  w.ahead = {};
  for (; left > 0; --left, w.skip(1), sums += m) {
    WeightRows one = w;
    one.rowBytes = one.scaleRowBytes = 0;
    vf32 all[R * kMaxM] = {};
    dot(one, all, m);
    for (uint32_t i = 0; i < m; ++i) sums[i] += all[i];
  }
  w.skip(-ptrdiff_t(count));
  w.ahead = next;
}

// What holds x in a form that is multiplied word by word.
template <int Bits, Form F>
struct ElementOf {
  using Type = float;
};
#if defined(__AVX512VNNI__)
template <int Bits, Form F>
  requires(F != Form::f32)
struct ElementOf<Bits, F> {
  using Type = LimbChunk<Bits, limbs_of(F)>;
};
#endif

// The words begin … end − 1 of `count` rows against M rows of x from m0 on. Each span is summed by itself, so that very
// long rows lose nothing.
template <int Bits, Fetch Ahead, int R, int M, Form F>
void span(WeightRows& w, const OrderedRows& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count, vf32* sums) {
  using T = typename ElementOf<Bits, F>::Type;
  const size_t stride = row_bytes<Bits>(F, a.columnStride, w.shift) / sizeof(T);
  const XRows<T> x = {static_cast<const T*>(a.ordered) + m0 * stride, stride, a.sums + m0 * a.groupStride,
                      a.groupStride};
  // One function for all rows: one that is called for a few of them begins and ends for a tenth of its time.
  with_scale_type<M>(w.scaleType, [&]<typename S>() {
    const auto dot = [&](const WeightRows& rows, vf32* to, size_t apart) __attribute__((always_inline)) {
      if constexpr (F == Form::f32) dot_f32<Bits, Ahead, R, M, S>(rows, x, begin, end, to, apart);
#if defined(__AVX512VNNI__)
      if constexpr (F != Form::f32) dot_limbs<Bits, Ahead, R, M, limbs_of(F), S>(rows, x, begin, end, to, apart);
#endif
    };
    each_row<R>(w, count, (end - begin) * 4, a.m, sums + m0, dot);
  });
}

// Whether sums of spans of so many words are written as they are, not added to what was there.
template <Form F>
bool writes_sums([[maybe_unused]] const WeightRows& w, [[maybe_unused]] uint32_t step) {
  return MLXTS_LIMB_PAIRS && F != Form::f32 && step == w.count;
}

#if MLXTS_LIMB_PAIRS
// As span, for pairs of groups.
template <int M, Form F>
void pairs_span(WeightRows& w, const OrderedRows& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count,
                vf32* sums) {
  constexpr int Limbs = limbs_of(F);
  const uint32_t first = begin * kPerWord<4> >> w.shift, groups = (end - begin) * kPerWord<4> >> w.shift;
  const size_t stride = row_bytes<4>(F, a.columnStride, w.shift);
  const uint8_t* sections = static_cast<const uint8_t*>(a.ordered) + m0 * stride;
  const PairRows x = {sections + row_bytes<4>(F, begin * kPerWord<4>, w.shift), stride,
                      a.sums + m0 * a.groupStride + first, a.groupStride};
  LastLimbs last = {};
  with_parts(w.shift, [&]<int Parts>() {
    if constexpr (Limbs == 3 && M == 1) last = last_limbs<Parts>(x.sections, groups);
    const auto dot_rows = [&]<typename S, Extent Of, bool FewLast>(uint32_t rows, vf32* to) {
      constexpr int R = Of == Extent::row ? kTogether : 1;
      const uint32_t left = rows % R, most = rows - left;
      dot_pairs<R, M, Limbs, Parts, S, Of, FewLast>(w, x, begin, groups, most, to, a.m, last);
      if (left == 0) return;
      w.skip(most);
      dot_pairs<1, M, Limbs, Parts, S, Of, FewLast>(w, x, begin, groups, left, to + most * a.m, a.m, last);
      w.skip(-ptrdiff_t(most));
    };
    const auto dot_with = [&]<typename S, Extent Of>(uint32_t rows, vf32* to) {
      if constexpr (Limbs == 3 && M == 1)
        if (last.few) return dot_rows.template operator()<S, Of, true>(rows, to);
      dot_rows.template operator()<S, Of, false>(rows, to);
    };
    // MLX quantizes in groups of 64 unless it is told otherwise. These have a function for each dtype of scales where one
    // row of x meets whole rows of W; all others ask for the dtype as they read scales.
    constexpr bool kUsual = Parts * kPartColumns == 64;
    const auto dot = [&](uint32_t rows, vf32* to) {
      if (groups % kSectionGroups == 0) {
        if constexpr (kUsual || M == 1)
          if (groups != w.groups) return dot_with.template operator()<AnyScale, Extent::part>(rows, to);
        if constexpr (kUsual && M == 1)
          return with_scale_type<M>(
              w.scaleType, [&]<typename S>() { dot_with.template operator()<S, Extent::row>(rows, to); });
      }
      dot_with.template operator()<AnyScale, Extent::any>(rows, to);
    };
    // What the last rows fetch lies beyond the block. Rows that are multiplied together stay so.
    const FetchAhead next = w.ahead;
    const size_t part = (end - begin) * 4;
    w.ahead = M == 1 && groups == w.groups ? ahead_of<kTogether>(w, part) : ahead_of<1>(w, part);
    const size_t reach = size_t(w.ahead.words) / w.rowBytes / kTogether * kTogether;
    const uint32_t beyond = reach < count ? uint32_t(reach) : count, within = count - beyond;
    dot(within, sums + m0);
    w.ahead = w.ahead + next;
    w.skip(within);
    dot(beyond, sums + within * a.m + m0);
    w.skip(-ptrdiff_t(within));
    w.ahead = next;
  });
}
#endif

// Registers hold R·M sums, in f32 twice.
constexpr int kWide = kLanes == 16 ? 4 : 2;

// From the end of `count` rows to what comes after their words begin … end − 1: the words of the same rows from `end`
// on, or the block that comes next.
inline FetchAhead next_part(const WeightRows& w, uint32_t count, uint32_t begin, uint32_t end, const FetchAhead& next) {
  const auto scale_bytes = [&](uint32_t words) { return ptrdiff_t(w.scaleRowBytes * words / w.count); };
  if (end == w.count) return next + FetchAhead{-ptrdiff_t(begin) * 4, -scale_bytes(begin), -scale_bytes(begin)};
  const ptrdiff_t scales = scale_bytes(end - begin) - ptrdiff_t(count * w.scaleRowBytes);
  return {ptrdiff_t(end - begin) * 4 - ptrdiff_t(count * w.rowBytes), scales, scales};
}

// How many rows of W, of so many bytes, are multiplied together with one row of x. Rows that are long lie far apart:
// what is fetched in the order of memory then has left the first cache before it is needed. With bf16 x of 4096
// columns, a core of a Zen 5 takes 1.23 times the time of reading W for four rows at a time and 1.10 for two; of 8192
// columns 1.29, 1.18 for two and 1.07 for one. Three limbs want four rows all the same, which share the reading of x.
constexpr int together(Form form, size_t bytes) {
  if (kFarRows || kLanes < 16) return 4;
  if (form == Form::twoLimbs && bytes > 2 << 10) return 1;
  return (form == Form::twoLimbs || form == Form::bytes) && bytes > 512 ? 2 : 4;
}

// Words of a row of W that are multiplied at once: all of them, or a part where x would not stay in the first cache.
template <int Bits>
uint32_t span_words(Form form, uint32_t m, uint32_t count, uint32_t shift) {
  const size_t bytes = (m < 4 ? m : 4) * row_bytes<Bits>(form, size_t(count) * kPerWord<Bits>, shift);
#if MLXTS_LIMB_PAIRS
  if (form != Form::f32) {
    if (bytes <= kPairBytes) return count;
    const size_t parts = (bytes + kPairBytes - 1) / kPairBytes;
    return uint32_t(round_up((count + parts - 1) / parts, section_words<Bits>(shift)));
  }
#endif
  if (bytes <= (m == 1 && together(form, count * 4) == 1 ? kOneRowBytes : kWholeBytes)) return count;
  return uint32_t(round_up(kPartBytes * count / bytes, section_words<Bits>(shift)));
}

// The words begin … end − 1 of `count` rows against all rows of x.
template <int Bits, Fetch Ahead, Form F>
void all_rows(WeightRows& w, const OrderedRows& a, uint32_t begin, uint32_t end, uint32_t count, vf32* sums) {
  const uint32_t m = a.m;
  uint32_t m0 = 0;
#if MLXTS_LIMB_PAIRS
  if constexpr (F != Form::f32) {
    for (; m0 + 4 <= m; m0 += 4) pairs_span<4, F>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 3) pairs_span<3, F>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 2) pairs_span<2, F>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 1) pairs_span<1, F>(w, a, m0, begin, end, count, sums);
    return;
  }
#endif
  for (; m0 + 4 <= m; m0 += 4) span<Bits, Ahead, kWide / 2, 4, F>(w, a, m0, begin, end, count, sums);
  if (m - m0 == 3) span<Bits, Ahead, F == Form::bytes ? kWide : kWide / 2, 3, F>(w, a, m0, begin, end, count, sums);
  if (m - m0 == 2) span<Bits, Ahead, kWide, 2, F>(w, a, m0, begin, end, count, sums);
  if (m - m0 != 1) return;
  const int rows = together(F, (end - begin) * 4);
  if (rows == 1) span<Bits, Ahead, 1, 1, F>(w, a, m0, begin, end, count, sums);
  if (rows == 2) span<Bits, Ahead, 2, 1, F>(w, a, m0, begin, end, count, sums);
  if (rows == 4) span<Bits, Ahead, 4, 1, F>(w, a, m0, begin, end, count, sums);
}

template <int Bits, Form F>
void spans(WeightRows& w, const OrderedRows& a, uint32_t count, vf32* sums) {
  constexpr Fetch kWhole = F == Form::twoLimbs || F == Form::bytes ? Fetch::twice : Fetch::once;
  const uint32_t step = span_words<Bits>(F, a.m, w.count, w.shift);
  const uint32_t all = uint32_t(round_up(count, kRows)) * a.m;
  for (uint32_t i = writes_sums<F>(w, step) ? count * a.m : 0; i < all; ++i) sums[i] = vf32{};
  if (step == w.count) return all_rows<Bits, kWhole, F>(w, a, 0, w.count, count, sums);
  const FetchAhead next = w.ahead;
  for (uint32_t begin = 0; begin < w.count; begin += step) {
    const uint32_t end = w.count - begin < step ? w.count : begin + step;
    w.ahead = next_part(w, count, begin, end, next);
    all_rows<Bits, kFarRows ? kWhole : Fetch::parts, F>(w, a, begin, end, count, sums);
  }
  w.ahead = next;
}

// The products of `count` rows of W and of all rows of x, biases of groups included: sums[r·m + i], still to be
// added up over lanes.
template <int Bits>
void multiply(WeightRows& w, const OrderedRows& x, uint32_t count, vf32* sums) {
#if MLXTS_LIMBS
  if constexpr (kInLimbs<Bits>) {
    if (x.form == Form::limbs) return spans<Bits, Form::limbs>(w, x, count, sums);
    if (x.form == Form::twoLimbs) return spans<Bits, Form::twoLimbs>(w, x, count, sums);
    if (x.form == Form::bytes) return spans<Bits, Form::bytes>(w, x, count, sums);
  }
#endif
  spans<Bits, Form::f32>(w, x, count, sums);
}

// All kernels share these, which are compiled with quantized_matvec.cpp.
extern template void multiply<4>(WeightRows&, const OrderedRows&, uint32_t, vf32*);
extern template void multiply<8>(WeightRows&, const OrderedRows&, uint32_t, vf32*);

}  // namespace mlxts
