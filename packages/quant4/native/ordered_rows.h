// Few rows of x in the order in which codes leave the words of W, in the form in which they are multiplied. P are
// params with cols, groupSize, columnStride, groupStride and int8.
#pragma once
#include "int8_activations.h"
#include "limb_pairs.h"
#include "matvec_dot.h"
#include "matvec_limbs.h"
#include "matvec_tiles.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constexpr uint32_t kRows = QUANTIZED_MATVEC_BLOCK_ROWS;  // of W of a threadgroup
constexpr uint32_t kMaxM = QUANTIZED_MATVEC_MOST_M;
constexpr uint32_t kUnit = QUANTIZED_MATVEC_UNIT;  // columns that are ordered together
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

// Bytes of a row of so many columns of x in a form, whole units of them, in groups of 2^shift.
template <int Bits>
constexpr size_t row_bytes(Form form, size_t columns, [[maybe_unused]] uint32_t shift) {
  if (form == Form::f32) return columns * 4;
#if MLXTS_LIMB_PAIRS
  return pair_section_bytes(limbs_of(form), (1 << shift) / kPartColumns, columns >> shift);
#elif MLXTS_LIMBS
  return columns / kChunk<Bits> *
         (form == Form::limbs      ? sizeof(LimbChunk<Bits, 3>)
          : form == Form::twoLimbs ? sizeof(LimbChunk<Bits, 2>)
                                   : sizeof(LimbChunk<Bits, 1>));
#else
  return 0;
#endif
}
#if MLXTS_LIMB_PAIRS
static_assert(row_bytes<4>(Form::limbs, kUnit, 5) <= 8 * kUnit && row_bytes<4>(Form::limbs, kUnit, 6) <= 8 * kUnit &&
              row_bytes<4>(Form::limbs, kUnit, 7) <= 8 * kUnit);  // what scratch has room for
#endif

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

inline float sum_of_32(const float* columns) {
  vf32 sum = load(columns);
  for (int j = kLanes; j < 32; j += kLanes) sum += load(columns + j);
  return reduce_add(sum);
}

#if defined(__AMX_INT8__)
inline TileRowsOfX tile_rows(const OrderedRows& a) {
  TileRowsOfX x = {static_cast<int8_t*>(a.ordered), nullptr, a.sums, a.groupStride, a.m,
                   a.form == Form::tiles ? 3u : 2u};
  x.units = reinterpret_cast<float*>(x.limbs + a.columnStride / kStepColumns * x.tiles() * kTileBytes);
  return x;
}
#endif

// Columns of x that are ordered together.
inline uint32_t ordered_columns(Form form, uint32_t shift) {
  const bool inSections = form == Form::limbs || form == Form::twoLimbs || (MLXTS_LIMB_PAIRS && form == Form::bytes);
  return inSections ? uint32_t(kLanes) << shift : kUnit;
}

// Orders so many columns of x, whole units of at most ordered_columns, in groups of 2^shift. Those beyond them are
// overwritten. `sums` are those of groups, which bytes change.
template <int Bits>
void order([[maybe_unused]] Form form, [[maybe_unused]] uint32_t shift, float* x, uint32_t columns, void* to,
           [[maybe_unused]] float* sums) {
#if MLXTS_LIMB_PAIRS
  if (form != Form::f32) {
    for (uint32_t c = columns; c < uint32_t(kLanes) << shift; ++c) x[c] = 0;
    const uint32_t groups = columns >> shift, pairs = groups < kSectionPairs ? groups : kSectionPairs;
    const auto with = [&]<int Parts>() {
      uint8_t* bytes = static_cast<uint8_t*>(to);
      if (form == Form::limbs) return order_pairs<3, Parts>(x, pairs, bytes, sums);
      if (form == Form::twoLimbs) return order_pairs<2, Parts>(x, pairs, bytes, sums);
      order_pairs<1, Parts>(x, pairs, bytes, sums);
    };
    with_parts(shift, with);
    return;
  }
#elif MLXTS_LIMBS
  const uint32_t chunks = columns / kChunk<Bits>;
  if (form == Form::limbs) return split_limbs(x, chunks, static_cast<LimbChunk<Bits, 3>*>(to));
  if (form == Form::twoLimbs) return split_limbs(x, chunks, static_cast<LimbChunk<Bits, 2>*>(to));
  if (form == Form::bytes) return order_bytes(x, 1 << shift, static_cast<LimbChunk<Bits, 1>*>(to), sums);
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
  const uint32_t shift = uint32_t(__builtin_ctz(p.groupSize));
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
    const uint32_t together = ordered_columns(a.form, shift);
    alignas(64) float widened[kLanes * 128];
    uint8_t* row = static_cast<uint8_t*>(a.ordered) + i * row_bytes<Bits>(a.form, a.columnStride, shift);
    for (uint32_t c = 0; c < p.cols; c += kUnit) {
      const uint32_t n = p.cols - c < kUnit ? p.cols - c : kUnit, in = c % together;
      float* unit = widened + in;
      t.x(x + size_t(c) * t.xBytes, unit, n);
      for (uint32_t k = n; k < kUnit; ++k) unit[k] = 0;
      if (a.form != Form::bytes) {
        if (byteGroup > 0) round_to_bytes(unit, n, byteGroup);
        for (uint32_t k = 0; k < n; k += 32) sums[(c + k) >> shift] += sum_of_32(unit + k);
      }
      if (in + kUnit == together || c + n == p.cols)
        order<Bits>(a.form, shift, widened, in + kUnit, row + row_bytes<Bits>(a.form, c - in, shift),
                    sums + ((c - in) >> shift));
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

}  // namespace mlxts
