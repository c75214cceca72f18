// One threadgroup: kColumns outputs of a head for all tokens. A row of the weight is read once for a few tokens, whose
// sums stay in registers.
#include "head_rows.params.h"
#include "head_weight.h"
#include "simd.h"

using namespace mlxts;

namespace {

constexpr size_t kColumns = HEAD_ROWS_GROUP_COLUMNS;
constexpr int kTokens = 4, kVectors = 4;  // of a tile of sums
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

// The same for all columns of a threadgroup.
template <int M, typename X, typename W>
__attribute__((noinline)) void add_columns(const X* x, size_t x_stride, const W* weight, size_t stride, size_t rows,
                                           size_t columns, float* out, size_t out_stride) {
  size_t c = 0;
  for (; c + kVectors * kLanes <= columns; c += kVectors * kLanes)
    add_rows<M, kVectors>(x, x_stride, weight + c, stride, rows, 0, out + c, out_stride);
  for (; c + kLanes <= columns; c += kLanes)
    add_rows<M, 1>(x, x_stride, weight + c, stride, rows, 0, out + c, out_stride);
  if (c < columns) add_rows<M, 1>(x, x_stride, weight + c, stride, rows, int(columns - c), out + c, out_stride);
}

template <typename X, typename W>
void head_rows(const Launch& l) {
  const auto& p = l.args<HeadRowsParams>();
  const size_t blocks = l.threadgroups[0], x_stride = size_t(p.heads) * p.xDim, out_stride = size_t(p.heads) * p.n;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t column = group % blocks * kColumns, head = group / blocks;
    const size_t columns = p.n - column < kColumns ? p.n - column : kColumns;
    const W* weight = l.buffer<const W>(HEAD_ROWS_WEIGHT) + head_weight(p, head, 0) + column;
    for (size_t token = 0; token < p.tokens;) {
      const X* x = l.buffer<const X>(HEAD_ROWS_X) + head_x(p, token, head);
      float* out = l.buffer<float>(HEAD_ROWS_OUT) + head_out(p, token, head) + column;
      const bool some = p.tokens - token >= kTokens;
      const auto add = some ? add_columns<kTokens, X, W> : add_columns<1, X, W>;
      add(x, x_stride, weight, p.rank, p.k, columns, out, out_stride);
      token += some ? kTokens : 1;
    }
  }
}

}  // namespace

#define HEAD_ROWS(x, X)                                \
  MLXTS_KERNEL(head_rows_##x##_f32, head_rows<X, float>) \
  MLXTS_KERNEL(head_rows_##x##_f16, head_rows<X, f16>)   \
  MLXTS_KERNEL(head_rows_##x##_bf16, head_rows<X, bf16>)
HEAD_ROWS(f32, float)
HEAD_ROWS(f16, f16)
HEAD_ROWS(bf16, bf16)
