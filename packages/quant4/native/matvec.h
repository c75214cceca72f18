// The insides of products with few rows of x: x is brought once into the order in which codes leave the words; each row
// of W is read from memory once, the next rows being fetched meanwhile. P are params with rows, cols, groupSize,
// columnStride, groupStride and int8.
#pragma once
#include <optional>

#include "int8_activations.h"
#include "limb_groups_dot.h"
#include "limbs_dot.h"
#include "matrix_reduce.h"
#include "matvec_dot.h"
#include "matvec_limbs.h"
#include "matvec_tiles.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constexpr uint32_t kRows = QUANTIZED_MATVEC_BLOCK_ROWS;  // of W of a threadgroup
constexpr uint32_t kMaxM = QUANTIZED_MATVEC_MOST_M;
constexpr uint32_t kUnit = QUANTIZED_MATVEC_UNIT;  // columns that are ordered together
// Of x: what stays in the first cache beside whole rows of W, and beside one of them; where it does not, what a part of
// a row of W is multiplied with.
constexpr size_t kWholeBytes = 24 << 10, kOneRowBytes = 32 << 10, kPartBytes = 8 << 10;

// Beside tiles, few rows are in limbs word by word (limbs.h); elsewhere, from least_group_rows on, in limbs group by
// group (limb_rows.h).
enum class Form { f32, limbs, twoLimbs, bytes, tiles, twoLimbTiles, groups };
constexpr bool in_tiles(Form form) { return form == Form::tiles || form == Form::twoLimbTiles; }

// Rows of x in the order in which codes leave the words, in scratch.
struct OrderedRows {
  void* ordered;  // [m, columnStride]
  float* sums;    // [m, groupStride]: Σx of each group, 0 beyond; or what groups of limbs come with
  size_t columnStride, groupStride;
  uint32_t m;  // rows
  Form form;
};

constexpr int limbs_of(Form form) { return form == Form::limbs ? 3 : form == Form::twoLimbs ? 2 : 1; }

// Bytes of so many columns of x in a form.
template <int Bits>
constexpr size_t form_bytes(Form form, size_t columns) {
  return form == Form::f32     ? columns * 4
         : form == Form::limbs ? columns / kChunk<Bits> * sizeof(LimbChunk<Bits, 3>)
         : form == Form::twoLimbs ? columns / kChunk<Bits> * sizeof(LimbChunk<Bits, 2>)
                               : columns / kChunk<Bits> * sizeof(LimbChunk<Bits, 1>);
}

// What holds x in a form: the chunk, where that is more than columns.
template <int Bits, Form F>
using Element =
    std::conditional_t<F == Form::f32, float, LimbChunk<Bits, limbs_of(F)>>;

template <int Bits>
void order_f32(const float* unit, float* to) {
  for (int c = 0; c < int(kUnit); c += kChunk<Bits>)
    for (int j = 0; j < kPerWord<Bits>; ++j)
      for (int l = 0; l < kLanes; ++l) to[c + j * kLanes + l] = unit[c + l * kPerWord<Bits> + j];
}

// The form in which a row of x is multiplied, in groups of bytes where such are wanted.
template <int Bits>
Form form_of([[maybe_unused]] const Types& t, [[maybe_unused]] const uint8_t* x, [[maybe_unused]] size_t n,
             [[maybe_unused]] uint32_t byteGroup) {
#if MLXTS_LIMBS
  if constexpr (kInLimbs<Bits>) {
    if (byteGroup > 0) return fits_bytes(t, x, n, byteGroup) ? Form::bytes : Form::f32;
    if (fits_limbs(t, x, n)) return limbs_of(t, false) == 2 ? Form::twoLimbs : Form::limbs;
  }
#endif
  return Form::f32;
}

// sums[i]: columns 32·i … 32·i + 31, to be added up over lanes.
inline void sum_unit(const float* unit, vf32 (&sums)[kUnit / 32]) {
  for (uint32_t i = 0; i < kUnit / 32; ++i) {
    sums[i] = load(unit + 32 * i);
    for (int j = kLanes; j < 32; j += kLanes) sums[i] += load(unit + 32 * i + j);
  }
}

#if defined(__AMX_INT8__)
inline TileRowsOfX tile_rows(const OrderedRows& a) {
  TileRowsOfX x = {static_cast<int8_t*>(a.ordered), nullptr, a.sums, a.groupStride, a.m,
                   a.form == Form::tiles ? 3u : 2u};
  x.units = reinterpret_cast<float*>(x.limbs + a.columnStride / kStepColumns * x.tiles() * kTileBytes);
  return x;
}
#endif

// Orders so many columns of x, whole units, in a form other than bytes: a section where that is limbs.
template <int Bits>
void order([[maybe_unused]] Form form, const float* x, uint32_t columns, void* to) {
#if MLXTS_LIMBS
  const uint32_t chunks = columns / kChunk<Bits>;
  if (form == Form::limbs) return split_limbs(x, chunks, static_cast<LimbChunk<Bits, 3>*>(to));
  if (form == Form::twoLimbs) return split_limbs(x, chunks, static_cast<LimbChunk<Bits, 2>*>(to));
#endif
  for (uint32_t c = 0; c < columns; c += kUnit) order_f32<Bits>(x + c, static_cast<float*>(to) + c);
}

// The `a.m` rows of which x_at(i) is the address.
template <int Bits, typename P, typename XAt>
void prepare(const Types& t, const P& p, XAt x_at, OrderedRows& a) {
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  a.form = Form::groups;
  const uint32_t limbs = limbs_of(t, p.int8);
  if (a.m >= least_group_rows(limbs) &&
      order_rows<Bits>(t, limbs, a.m, p.cols, p.groupSize, static_cast<int8_t*>(a.ordered), a.sums, x_at))
    return;
#endif
  const uint32_t byteGroup = p.int8 ? p.groupSize : 0;
  a.form = form_of<Bits>(t, x_at(0), p.cols, byteGroup);
  for (uint32_t i = 1; i < a.m && a.form != Form::f32; ++i) a.form = form_of<Bits>(t, x_at(i), p.cols, byteGroup);
  const int shift = __builtin_ctz(p.groupSize);
#if defined(__AMX_INT8__)
  const bool three = a.form == Form::limbs;
  if ((three || a.form == Form::twoLimbs) && wants_tiles(a.m, three ? 3 : 2, p.groupSize)) {
    a.form = three ? Form::tiles : Form::twoLimbTiles;
    const TileRowsOfX x = tile_rows(a);
    const size_t tiles = x.tiles(), steps = p.cols / kStepColumns;
    memset(x.units, 0, round_up(steps, kUnitSteps) / kUnitSteps * tiles * 16 * sizeof(float));
    // Steps come in pairs.
    memset(x.limbs + steps * tiles * kTileBytes, 0, steps % 2 * tiles * kTileBytes);
  }
#endif
  for (uint32_t i = 0; i < a.m; ++i) {
    const uint8_t* x = x_at(i);
    float* sums = a.sums + size_t(i) * p.groupStride;
    for (size_t g = 0; g < p.groupStride; ++g) sums[g] = 0;
#if defined(__AMX_INT8__)
    if (in_tiles(a.form)) {
      order_tiles<Bits>(t, x, p.cols, p.groupSize, i, tile_rows(a));
      continue;
    }
#endif
    // Limbs want the largest number of a section first.
    constexpr uint32_t kMostSection = kLanes * 128;
    const bool limbs = a.form == Form::limbs || a.form == Form::twoLimbs;
    const uint32_t section = limbs ? uint32_t(kLanes) << shift : kUnit;
    alignas(64) float widened[kMostSection];
    for (uint32_t c = 0; c < p.cols; c += kUnit) {
      const uint32_t n = p.cols - c < kUnit ? p.cols - c : kUnit, in = c % section;
      float* unit = widened + in;
      t.x(x + size_t(c) * t.xBytes, unit, n);
      for (uint32_t k = n; k < kUnit; ++k) unit[k] = 0;
      uint8_t* to = static_cast<uint8_t*>(a.ordered) + form_bytes<Bits>(a.form, i * a.columnStride + c - in);
      vf32 some[kUnit / 32];
      if (a.form == Form::bytes) {
#if MLXTS_LIMBS
        order_bytes(unit, byteGroup, reinterpret_cast<LimbChunk<Bits, 1>*>(to), some);
#endif
      } else {
        if (byteGroup > 0) round_to_bytes(unit, n, byteGroup);
        sum_unit(unit, some);
        if (in + kUnit == section || c + n == p.cols) order<Bits>(a.form, widened, in + kUnit, to);
      }
      for (uint32_t k = 0; k < n; k += 32) sums[(c + k) >> shift] += reduce_add(some[k / 32]);
    }
  }
}

// What a thread has prepared last for a dispatch (`prepared_in`), and its form.
struct PreparedFew {
  uint64_t rows;
  Form form;
};
static_assert(sizeof(PreparedFew) <= 4 * QUANTIZED_MATVEC_PREPARED_WORDS);

// As prepare, unless scratch holds these rows.
template <int Bits, typename P, typename XAt>
void prepare_once(PreparedFew& prepared, uint64_t rows, const Types& t, const P& p, XAt x_at, OrderedRows& a) {
  if (prepared.rows != rows) {
    prepare<Bits>(t, p, x_at, a);
    prepared = {rows, a.form};
  }
  a.form = prepared.form;
}

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

// Rows of x from m0 on.
template <int Bits, Form F>
XRows<Element<Bits, F>> x_rows(const OrderedRows& a, uint32_t m0) {
  using T = Element<Bits, F>;
  const size_t stride = form_bytes<Bits>(F, a.columnStride) / sizeof(T);
  return {static_cast<const T*>(a.ordered) + m0 * stride, stride, a.sums + m0 * a.groupStride, a.groupStride};
}

// The words begin … end − 1 of `count` rows against M rows of x from m0 on. Each span is summed by itself, so that very
// long rows lose nothing.
template <int Bits, Fetch Ahead, int R, int M, Form F>
void span(WeightRows& w, const OrderedRows& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count, vf32* sums) {
  const XRows<Element<Bits, F>> x = x_rows<Bits, F>(a, m0);
  // One function for all rows: one that is called for a few of them begins and ends for a tenth of its time.
  with_scale_type<M>(w.scaleType, [&]<typename S>() {
    const auto dot = [&](const WeightRows& rows, vf32* to, size_t apart) __attribute__((always_inline)) {
      if constexpr (F == Form::f32) dot_f32<Bits, Ahead, R, M, S>(rows, x, begin, end, to, apart);
#if MLXTS_LIMBS
      if constexpr (F == Form::limbs || F == Form::twoLimbs || F == Form::bytes)
        dot_limbs<Bits, Ahead, R, M, limbs_of(F), S>(rows, x, begin, end, to, apart);
#endif
    };
    each_row<R>(w, count, (end - begin) * 4, a.m, sums + m0, dot);
  });
}

#if MLXTS_LIMBS && !defined(__AVX512F__)
// As span, where chunks are groups.
template <int Bits, int M, Form F>
void groups_span(WeightRows& w, const OrderedRows& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count,
                 vf32* sums) {
  constexpr int Limbs = limbs_of(F);
  const XRows<LimbChunk<Bits, Limbs>> x = x_rows<Bits, F>(a, m0);
  LastLimbs last = {};
  if constexpr (Limbs == 3 && M == 1) last = last_limbs<Bits>(x.ordered + begin / kLanes, (end - begin) / kLanes);
  with_scale_type<M>(w.scaleType, [&]<typename S>() {
    const auto dot_rows = [&]<Extent Of>(uint32_t rows, vf32* to) {
      if constexpr (Limbs == 3 && M == 1)
        if (last.few)
          return dot_limb_groups<Bits, M, Limbs, S, Of, true>(w, x, begin, end, rows, to, a.m, last);
      dot_limb_groups<Bits, M, Limbs, S, Of, false>(w, x, begin, end, rows, to, a.m, last);
    };
    const auto dot = [&](uint32_t rows, vf32* to) {
      if ((end - begin) % (kLanes * kSectionChunks) > 0) return dot_rows.template operator()<Extent::any>(rows, to);
      if (end - begin == w.count) return dot_rows.template operator()<Extent::row>(rows, to);
      dot_rows.template operator()<Extent::sections>(rows, to);
    };
    // What the last rows fetch lies beyond the block.
    const FetchAhead next = w.ahead;
    w.ahead = ahead_of<1>(w, (end - begin) * 4);
    const size_t reach = size_t(w.ahead.words) / w.rowBytes;
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
// AVX2 has registers for two in limbs.
constexpr int together(Form form, size_t bytes) {
  if (kLanes == 8) return form == Form::f32 ? 4 : 2;
  if (kFarRows || kLanes < 16) return 4;
  if (form == Form::twoLimbs && bytes > 2 << 10) return 1;
  return (form == Form::twoLimbs || form == Form::bytes) && bytes > 512 ? 2 : 4;
}

// Words of a row of W that are multiplied at once: all of them, or a part where x would not stay in the first cache.
template <int Bits>
uint32_t span_words(Form form, uint32_t m, uint32_t count, uint32_t shift) {
  const size_t bytes = (m < 4 ? m : 4) * form_bytes<Bits>(form, size_t(count) * kPerWord<Bits>);
  if (bytes <= (m == 1 && together(form, count * 4) == 1 ? kOneRowBytes : kWholeBytes)) return count;
  return uint32_t(round_up(kPartBytes * count / bytes, section_words<Bits>(shift)));
}

// The words begin … end − 1 of `count` rows against all rows of x.
template <int Bits, Fetch Ahead, Form F>
void all_rows(WeightRows& w, const OrderedRows& a, uint32_t begin, uint32_t end, uint32_t count, vf32* sums) {
  const uint32_t m = a.m;
  uint32_t m0 = 0;
#if MLXTS_LIMBS && !defined(__AVX512F__)
  if constexpr (kInLimbs<Bits> && F != Form::f32)
    if (chunks_are_groups<Bits>(w.shift)) {
      for (; m0 + 4 <= m; m0 += 4) groups_span<Bits, 4, F>(w, a, m0, begin, end, count, sums);
      if (m - m0 == 3) groups_span<Bits, 3, F>(w, a, m0, begin, end, count, sums);
      if (m - m0 == 2) groups_span<Bits, 2, F>(w, a, m0, begin, end, count, sums);
      if (m - m0 == 1) groups_span<Bits, 1, F>(w, a, m0, begin, end, count, sums);
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
  for (uint32_t i = 0; i < round_up(count, kRows) * x.m; ++i) sums[i] = vf32{};
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

// Rows of W that make a block: `count` from row0 on; or, far apart, as many from each of some parts of partRows rows.
struct BlockRows {
  uint32_t row0, count, parts = 1, partRows = 0;
};

// Adds the linear bias, rounds, and stores the products with the rows of a block, which product_at(i) gives for row i
// of x; those of row i of x and of the block's first row go to out_at(i).
template <typename ProductAt, typename OutAt>
void store_products(const Types& t, const Product& product, uint32_t m, const BlockRows& rows, ProductAt product_at,
                    const OutAt& out_at) {
  static_assert(kRows % kLanes == 0);
  const uint32_t each = rows.count / rows.parts;
  float bias[kRows] = {}, y[kRows], rounded[kRows];
  if (product.widenBias)
    for (uint32_t part = 0; part < rows.parts; ++part)
      product.widenBias(product.bias + (rows.row0 + part * rows.partRows) * product.biasBytes, bias + part * each,
                        each);
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t r = 0; r < kRows; r += kLanes) store(y + r, product_at(i, r) + load(bias + r));
    if (rows.parts == 1) {
      t.out(y, out_at(i), each);
      continue;
    }
    t.out(y, rounded, rows.count);
    const auto* from = reinterpret_cast<const uint8_t*>(rounded);
    uint8_t* to = out_at(i);
    // A few bytes to each part: a call would cost more.
    const size_t bytes = each * t.outBytes, apart = rows.partRows * t.outBytes;
    for (uint32_t part = 0; part < rows.parts; ++part, from += bytes, to += apart)
      for (size_t b = 0; b < bytes; b += 2) memcpy(to + b, from + b, 2);
  }
}

// The products of a block of rows of W and of all rows of x. The block `next` is fetched meanwhile.
template <int Bits, typename P, typename OutAt>
void block_products(const Types& t, const P& p, const Product& product, const BlockRows& rows, const BlockAt& next,
                    const OrderedRows& x, const OutAt& out_at) {
  const size_t rowBytes = size_t(p.cols) * Bits / 8, scaleRowBytes = p.cols / p.groupSize * t.scaleBytes;
  const bool far = rows.parts > 1;
  const size_t apart = far ? rows.partRows : 1;
  WeightRows w = {product.weight + rows.row0 * rowBytes,
                  apart * rowBytes,
                  p.cols / kPerWord<Bits>,
                  product.scales + rows.row0 * scaleRowBytes,
                  product.biases + rows.row0 * scaleRowBytes,
                  apart * scaleRowBytes,
                  p.cols / p.groupSize,
                  rowBytes,
                  scaleRowBytes,
                  t.scaleType,
                  uint32_t(__builtin_ctz(p.groupSize)),
                  {}};
#if defined(__AMX_INT8__)
  if (in_tiles(x.form)) {
    alignas(64) float y[kMaxM * kRows];
    multiply_tiles<Bits>(w, tile_rows(x), rows.count, far, y);
    store_products(t, product, x.m, rows, [&](uint32_t i, uint32_t r) { return load(y + i * kRows + r); }, out_at);
    return;
  }
#endif
  if (!far) {  // else rows fetch for themselves
    const uint32_t end = rows.row0 + rows.count;
    const auto [then, row] = next.product ? next : BlockAt{&product, rows.row0};
    w.ahead = {distance(product.weight + end * rowBytes, then->weight + row * rowBytes),
               distance(product.scales + end * scaleRowBytes, then->scales + row * scaleRowBytes),
               distance(product.biases + end * scaleRowBytes, then->biases + row * scaleRowBytes)};
  }
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  if (x.form == Form::groups) {
    alignas(64) float y[kMaxM * kRows];
    const LimbRows limbs = {static_cast<int8_t*>(x.ordered), x.sums, x.m, limbs_of(t, p.int8)};
    multiply_limb_rows<Bits>(w, limbs, rows.count, far, y);
    store_products(t, product, x.m, rows, [&](uint32_t i, uint32_t r) { return load(y + i * kRows + r); }, out_at);
    return;
  }
#endif
  vf32 sums[kRows * kMaxM];
  multiply<Bits>(w, x, rows.count, sums);
  for (uint32_t row = 0; row < rows.count; row += kRows) {
    const auto sum_lanes = [&](uint32_t i, uint32_t r) {
      vf32 lanes[kLanes];
      for (int l = 0; l < kLanes; ++l) lanes[l] = sums[(row + r + l) * x.m + i];
      return reduce_add_all(lanes);
    };
    BlockRows some = rows;
    some.row0 += row;
    some.count = rows.count - row < kRows ? rows.count - row : kRows;
    store_products(t, product, x.m, some, sum_lanes, [&](uint32_t i) { return out_at(i) + row * t.outBytes; });
  }
}

// The products of rows begin … end − 1 of W and of all rows of x; those of row i of x and of row `begin` go to
// out_at(i). The block `next` comes after them.
template <int Bits, typename P, typename OutAt>
void multiply_rows(const Types& t, const P& p, const Product& product, uint32_t begin, uint32_t end, BlockAt next,
                   const OrderedRows& x, OutAt out_at) {
  const auto multiply_at = [&](const BlockRows& rows, const BlockAt& after) {
    block_products<Bits>(t, p, product, rows, after, x,
                         [&](uint32_t i) { return out_at(i) + (rows.row0 - begin) * t.outBytes; });
  };
#if defined(__AMX_INT8__)
  std::optional<AmxTiles> tiles;
  if (in_tiles(x.form)) tiles.emplace();
#endif
  uint32_t row = begin;
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  const bool far = x.form == Form::groups && kFarIsFaster;
#else
  constexpr bool far = kFarRows;
#endif
  if (far) {
    const uint32_t parts = in_tiles(x.form) ? kTileParts : kParts, each = kRows / parts;
    const uint32_t blocks = (end - begin) / kRows, partRows = blocks * each;
    for (uint32_t i = 0; i < blocks; ++i, row += each) multiply_at({row, kRows, parts, partRows}, {nullptr, 0});
    row = begin + blocks * kRows;
  }
  // Where rows are multiplied in parts, one part of x serves many of them; with AVX2, whose cores stop longer at the
  // end of a block than at that of a row, many save time anyway.
  const uint32_t words = p.cols / kPerWord<Bits>, shift = uint32_t(__builtin_ctz(p.groupSize));
  const bool parts = x.form < Form::tiles && span_words<Bits>(x.form, x.m, words, shift) < words;
  const uint32_t block = parts || kLanes == 8 ? kRows * (kMaxM / x.m) : kRows;
  for (; row < end; row += block)
    multiply_at({row, end - row < block ? end - row : block},
                row + block < end ? BlockAt{&product, row + block} : next);
}

}  // namespace mlxts
