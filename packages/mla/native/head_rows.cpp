// One threadgroup: kColumns outputs of a head for all tokens. A row of the weight is read once for a few tokens, whose
// sums stay in registers.
#include "weight_rows.h"

using namespace mlxts;

namespace {

constexpr size_t kColumns = HEAD_ROWS_GROUP_COLUMNS;
// Vectors of columns in a tile of sums over numbers: as many as keep sums in registers, but enough of them that none waits for
// the one before.
template <int M>
inline constexpr int kVectors = M == 1 ? 8 : 4;
// How far ahead rows are prefetched: what a tile reads of a row is short.
constexpr size_t kAheadRows = 8;

// out[m] = Σ_i x[m][i] · weight[i] in V vectors of columns, for M tokens; with a `tail`, in its columns alone.
template <int M, int V, typename X, typename W>
MLXTS_INLINE void add_rows(const X* x, size_t x_stride, const W* weight, size_t stride, size_t rows, int tail,
                           float* out, size_t out_stride) {
  vf32 sum[M][V] = {};
  for (size_t i = 0; i < rows; ++i, weight += stride) {
    vf32 row[V];
    MLXTS_UNROLL
    for (int v = 0; v < V; ++v) row[v] = tail ? load_partial(weight, tail) : load(weight + v * kLanes);
    __builtin_prefetch(weight + kAheadRows * stride);
    MLXTS_UNROLL
    for (int m = 0; m < M; ++m) {
      const vf32 left = splat(to_f32(x[m * x_stride + i]));
      MLXTS_UNROLL
      for (int v = 0; v < V; ++v) sum[m][v] = fma(left, row[v], sum[m][v]);
    }
  }
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) {
    MLXTS_UNROLL
    for (int v = 0; v < V; ++v)
      store_up_to(out + m * out_stride + v * kLanes, sum[m][v], tail ? size_t(tail) : size_t(kLanes));
  }
}

// The same for `columns` columns from `first` on.
template <int M, typename X, typename W>
__attribute__((noinline)) void add_columns(const X* x, size_t x_stride, const WeightRows<W>& weight, size_t rows,
                                           size_t first, size_t columns, float* out, size_t out_stride) {
  const W* w = weight.first + first;
  size_t c = 0;
  for (; c + kVectors<M> * kLanes <= columns; c += kVectors<M> * kLanes)
    add_rows<M, kVectors<M>>(x, x_stride, w + c, weight.stride, rows, 0, out + c, out_stride);
  for (; c + kLanes <= columns; c += kLanes)
    add_rows<M, 1>(x, x_stride, w + c, weight.stride, rows, 0, out + c, out_stride);
  if (c < columns) add_rows<M, 1>(x, x_stride, w + c, weight.stride, rows, int(columns - c), out + c, out_stride);
}

// The same of codes: of kLanes words at a time, a vector for the j-th column of each.
template <int M, typename X, typename S, int Bits>
__attribute__((noinline)) void add_columns(const X* x, size_t x_stride, const WeightRows<Affine<S, Bits>>& weight,
                                           size_t rows, size_t first, size_t columns, float* out, size_t out_stride) {
  constexpr int P = kPerWord<Bits>;
  const Codes<Bits> codes;
  const LaneScales lanes = LaneScales::of<Bits>(1u << weight.groupShift);
  for (size_t c = 0; c < columns; c += kChunk<Bits>) {
    const uint32_t count = uint32_t((columns - c < size_t(kChunk<Bits>) ? columns - c : kChunk<Bits>) / P);
    vf32 sum[M][P] = {};
    for (size_t i = 0; i < rows; ++i) {
      const auto words = weight.words_at(i, first + c, count, lanes, codes);
      __builtin_prefetch(weight.word(i + kAheadRows, first + c));
      vf32 left[M];
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) left[m] = splat(to_f32(x[m * x_stride + i]));
      MLXTS_UNROLL
      for (int j = 0; j < P; ++j) {
        const vf32 w = words.at(codes, j);
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) sum[m][j] = fma(left[m], w, sum[m][j]);
      }
    }
    for (int m = 0; m < M; ++m)
      for (uint32_t l = 0; l < count; ++l)
        for (int j = 0; j < P; ++j) out[m * out_stride + c + l * P + j] = sum[m][j][l];
  }
}

// Tokens of a tile of sums: as many as keep them in registers.
template <typename W>
inline constexpr int kTokens = 4;
template <typename S, int Bits>
inline constexpr int kTokens<Affine<S, Bits>> = (kLanes == 16 ? 16 : 8) / kPerWord<Bits>;

// Of a smaller one, for the last tokens.
template <typename W>
inline constexpr int kSomeTokens = kTokens<W> > 2 ? 2 : 1;

// The outputs of `columns` columns from `first` on of a weight, from `column` on of `out`, for all tokens.
template <typename X, typename W>
void add_tokens(const Launch& l, const HeadRowsParams& p, size_t head, const WeightRows<W>& weight, size_t first,
                size_t column, size_t columns) {
  const size_t x_stride = size_t(p.heads) * p.xDim, out_stride = size_t(p.heads) * p.n;
  for (size_t token = 0; token < p.tokens;) {
    const X* x = l.buffer<const X>(HEAD_ROWS_X) + head_x(p, token, head);
    float* out = l.buffer<float>(HEAD_ROWS_OUT) + head_out(p, token, head) + column;
    const auto add = [&](auto count) {
      add_columns<count>(x, x_stride, weight, p.k, first, columns, out, out_stride);
      token += count;
    };
    if (p.tokens - token >= kTokens<W>)
      add(std::integral_constant<int, kTokens<W>>());
    else if (p.tokens - token >= kSomeTokens<W>)
      add(std::integral_constant<int, kSomeTokens<W>>());
    else
      add(std::integral_constant<int, 1>());
  }
}

template <typename X, typename W>
void head_rows(const Launch& l) {
  const auto& p = l.args<HeadRowsParams>();
  const size_t blocks = l.threadgroups[0];
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t column = group % blocks * kColumns, head = group / blocks;
    const size_t columns = p.n - column < kColumns ? p.n - column : kColumns;
    const WeightRows<W> weight = weight_rows<W>(l, p, head);
    if constexpr (kIsCodes<W>)
      if (p.tokens > kDecodedTokens) {
        float* decoded = scratch_of(l, p).decoded;  // [k, kColumns]
        for (size_t i = 0; i < p.k; ++i) weight.decode(i, column, columns, decoded + i * kColumns);
        add_tokens<X>(l, p, head, WeightRows<float>{decoded, kColumns}, 0, column, columns);
        continue;
      }
    add_tokens<X>(l, p, head, weight, column, column, columns);
  }
}

}  // namespace

#define HEAD_ROWS(w, ...)                                    \
  MLXTS_KERNEL(head_rows_f32_##w, head_rows<float, __VA_ARGS__>) \
  MLXTS_KERNEL(head_rows_f16_##w, head_rows<f16, __VA_ARGS__>)   \
  MLXTS_KERNEL(head_rows_bf16_##w, head_rows<bf16, __VA_ARGS__>)
MLXTS_WEIGHTS(HEAD_ROWS)
