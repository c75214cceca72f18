// One threadgroup: kGroupRows rows of a head's weight against some tokens. Rows are read in place, four at a time, while
// x, in the order in which they are loaded, stays in cache.
#include "head_dots.params.h"
#include "matrix_reduce.h"
#include "matrix_rows.h"
#include "weight_rows.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupRows = HEAD_DOTS_GROUP_ROWS, kGroupTokens = HEAD_DOTS_GROUP_TOKENS;
constexpr int kRows = HEAD_DOTS_ROWS;
static_assert(kRows == 4, "sums are reduced four at a time");
// How far ahead each row of codes is prefetched. They take longer to multiply than to read.
constexpr size_t kAheadCodes = 2048;

// x in the order in which a weight's rows are read, padded with zeros.
template <typename W>
struct Order {
  template <typename X>
  static void of(const X* x, size_t k, float* to) {
    to_load_order<W>(x, k, to);
  }
};
template <typename S, int Bits>
struct Order<Affine<S, Bits>> {
  template <typename X>
  static void of(const X* x, size_t k, float* to) {
    for (size_t i = 0; i < round_up(k, kChunk<Bits>); ++i) {
      const size_t lane = i % kLanes, j = i / kLanes % kPerWord<Bits>;
      const size_t from = i / kChunk<Bits> * kChunk<Bits> + lane * kPerWord<Bits> + j;
      to[i] = from < k ? to_f32(x[from]) : 0;
    }
  }
};

// Tokens in one pass over the rows: as many as keep their sums in registers.
template <typename W>
inline constexpr int kTokens = kLanes == 16 ? 4 : 2;
template <typename S, int Bits>
inline constexpr int kTokens<Affine<S, Bits>> = kLanes == 16 ? 4 : 1;
// In a pass for the last tokens.
template <typename W>
inline constexpr int kSomeTokens = kTokens<W> > 2 ? 2 : 1;

// sums[m] = the products of kRows rows of the weight with x[m], for M tokens.
template <int M, typename W>
__attribute__((noinline)) void dot_rows(const WeightRows<W>& weight, const size_t (&rows)[kRows], const float* x,
                                        size_t x_stride, size_t k, vf32x4* sums) {
  vf32 sum[M][kRows] = {};
  const auto step = [&](size_t i, auto get) {
    vf32 first[M], second[M];
    MLXTS_UNROLL
    for (int m = 0; m < M; ++m) {
      first[m] = in_register(load(x + m * x_stride + i));
      second[m] = in_register(load(x + m * x_stride + i + kLanes));
    }
    MLXTS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      vf32 a, b;
      get(weight.row(rows[r]) + i, a, b);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) sum[m][r] = fma(b, second[m], fma(a, first[m], sum[m][r]));
    }
  };
  size_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes)
    step(i, [](const W* from, vf32& a, vf32& b) {
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kRowsAhead, 0, kRowsLocality);
      load_two(from, a, b);
    });
  if (i < k) step(i, [&](const W* from, vf32& a, vf32& b) { load_two_partial(from, int(k - i), a, b); });
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = reduce_add4(sum[m]);
}

// The same of codes, kLanes words of each row at a time.
template <int M, typename S, int Bits>
__attribute__((noinline)) void dot_rows(const WeightRows<Affine<S, Bits>>& weight, const size_t (&rows)[kRows],
                                        const float* x, size_t x_stride, size_t k, vf32x4* sums) {
  constexpr int P = kPerWord<Bits>;
  const Codes<Bits> codes;
  const LaneScales lanes = LaneScales::of<Bits>(1u << weight.groupShift);
  vf32 sum[M][kRows] = {};
  for (size_t i = 0; i < k; i += kChunk<Bits>) {
    const uint32_t count = uint32_t((k - i < size_t(kChunk<Bits>) ? k - i : kChunk<Bits>) / P);
    WeightWords<Bits> words[kRows];
    MLXTS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      words[r] = weight.words_at(rows[r], i, count, lanes, codes);
      __builtin_prefetch(weight.word(rows[r], i) + kAheadCodes);
    }
    MLXTS_UNROLL
    for (int j = 0; j < P; ++j) {
      vf32 w[kRows];
      MLXTS_UNROLL
      for (int r = 0; r < kRows; ++r) w[r] = words[r].at(codes, j);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        const vf32 v = load(x + m * x_stride + i + j * kLanes);
        MLXTS_UNROLL
        for (int r = 0; r < kRows; ++r) sum[m][r] = fma(w[r], v, sum[m][r]);
      }
    }
  }
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = reduce_add4(sum[m]);
}

// The same for all of `tokens` tokens: store(token, sums).
template <typename W, typename Store>
void dot_tokens(const WeightRows<W>& weight, const size_t (&rows)[kRows], const float* x, size_t x_stride, size_t k,
                size_t tokens, Store store) {
  const auto dot = [&](size_t token, auto count) {
    vf32x4 sums[count];
    dot_rows<count>(weight, rows, x + token * x_stride, x_stride, k, sums);
    for (size_t m = 0; m < count; ++m) store(token + m, sums[m]);
  };
  size_t token = 0;
  for (; token + kTokens<W> <= tokens; token += kTokens<W>) dot(token, std::integral_constant<int, kTokens<W>>());
  for (; token + kSomeTokens<W> <= tokens; token += kSomeTokens<W>)
    dot(token, std::integral_constant<int, kSomeTokens<W>>());
  if (token < tokens) dot(token, std::integral_constant<int, 1>());
}

// Rows of codes as numbers, in the order in which x lies; returns how many a row has, whole chunks.
template <typename S, int Bits>
size_t decode_rows(const WeightRows<Affine<S, Bits>>& weight, const size_t (&rows)[kRows], size_t k, float* to,
                   size_t stride) {
  constexpr int P = kPerWord<Bits>;
  const Codes<Bits> codes;
  const LaneScales lanes = LaneScales::of<Bits>(1u << weight.groupShift);
  for (int r = 0; r < kRows; ++r)
    for (size_t i = 0; i < k; i += kChunk<Bits>) {
      const uint32_t count = uint32_t((k - i < size_t(kChunk<Bits>) ? k - i : kChunk<Bits>) / P);
      const WeightWords<Bits> words = weight.words_at(rows[r], i, count, lanes, codes);
      MLXTS_UNROLL
      for (int j = 0; j < P; ++j) store(to + r * stride + i + j * kLanes, words.at(codes, j));
    }
  return round_up(k, kChunk<Bits>);
}

template <typename X, typename W, typename O>
void head_dots(const Launch& l) {
  const auto& p = l.args<HeadDotsParams>();
  const size_t row_blocks = l.threadgroups[0];
  const auto [x, decoded] = scratch_of(l, p);  // [kGroupTokens, width], [kRows, width]
  size_t ordered = ~size_t(0);    // the head and tokens whose x lies there
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t first = group % row_blocks * kGroupRows, place = group / row_blocks;
    const size_t head = place % p.heads, first_token = place / p.heads * kGroupTokens;
    const size_t end = p.n - first < kGroupRows ? p.n : first + kGroupRows;
    const size_t tokens = p.tokens - first_token < kGroupTokens ? p.tokens - first_token : kGroupTokens;
    const WeightRows<W> weight = weight_rows<W>(l, p, head);
    if (ordered != place) {
      for (size_t token = 0; token < tokens; ++token)
        Order<W>::of(l.buffer<const X>(HEAD_DOTS_X) + head_x(p, first_token + token, head), p.k, x + token * p.width);
      ordered = place;
    }
    for (size_t row = first; row < end; row += kRows) {
      size_t rows[kRows];  // the last row again in place of missing ones
      for (size_t r = 0; r < kRows; ++r) rows[r] = row + r < end ? row + r : end - 1;
      const auto store = [&](size_t token, vf32x4 sums) {
        O* out = l.buffer<O>(HEAD_DOTS_OUT) + head_out(p, first_token + token, head) + row;
        for (size_t r = 0; r < kRows && row + r < end; ++r) out[r] = from_f32<O>(sums[r]);
      };
      if constexpr (kIsCodes<W>)
        if (tokens > kDecodedTokens) {
          const size_t width = decode_rows(weight, rows, p.k, decoded, p.width);
          dot_tokens(WeightRows<float>{decoded, p.width}, {0, 1, 2, 3}, x, p.width, width, tokens, store);
          continue;
        }
      dot_tokens(weight, rows, x, p.width, p.k, tokens, store);
    }
  }
}

}  // namespace

#define HEAD_DOTS(w, ...)                                               \
  MLXTS_KERNEL(head_dots_f32_##w##_f32, head_dots<float, __VA_ARGS__, float>) \
  MLXTS_KERNEL(head_dots_f16_##w##_f32, head_dots<f16, __VA_ARGS__, float>)   \
  MLXTS_KERNEL(head_dots_bf16_##w##_f32, head_dots<bf16, __VA_ARGS__, float>) \
  MLXTS_KERNEL(head_dots_f32_##w##_f16, head_dots<float, __VA_ARGS__, f16>)   \
  MLXTS_KERNEL(head_dots_f32_##w##_bf16, head_dots<float, __VA_ARGS__, bf16>)
MLXTS_WEIGHTS(HEAD_DOTS)
