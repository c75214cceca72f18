// One threadgroup: groupRows query rows (tokens, and within them the heads that share a key/value head) against all
// keys that the last of them sees, in blocks: keys and values are packed once for all rows, and six rows at a time go
// through scores, online softmax and weighted values. Visible keys are a prefix, so a row's share of a block is a
// count.
#include "attention.h"
#include "matrix_pack.h"
#include "sdpa.params.h"

using namespace mlxts;

namespace {

template <typename X, typename C>
int32_t sdpa(const Launch& l) {
  const auto& p = l.args<SdpaParams>();
  constexpr bool kBf16 = kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<C, bf16>;
  using E = std::conditional_t<kBf16, bf16x2, float>;
  const X* q = l.buffer<const X>(SDPA_Q);
  const Indices lengths = l.indices(SDPA_LENGTHS);
  X* out = l.buffer<X>(SDPA_OUT);
  if (const int32_t failed = check_lengths<SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS>(l, p, lengths)) return failed;

  const size_t dim = p.dim, width = (dim + 63) / 64 * 64;
  const size_t share = p.heads / p.kvHeads, allRows = p.tokens * share;
  const size_t dimSteps = kBf16 ? (dim + 1) / 2 : dim;
  float* queries = static_cast<float*>(l.scratch);  // [groupRows][width]
  float* sums = queries + p.groupRows * width;      // [groupRows][width]
  float* keys = sums + p.groupRows * width;         // [panels of 64][dimSteps][kPanelColumns]
  float* values = keys + kBlockKeys * width;        // [panels of width][64][kPanelColumns]
  float* scores = values + kBlockKeys * width;      // [kPanelRows][64]
  Softmax* states = reinterpret_cast<Softmax*>(scores + kPanelRows * kBlockKeys);  // [groupRows]
  const size_t keyPanel = dimSteps * kPanelColumns, valuePanel = kBlockKeys * kPanelColumns;

  for (uint64_t group = l.begin; group < l.end; ++group) {
    // Last rows first: when causal they see most and take longest.
    const size_t block = l.threadgroups[0] - 1 - group % l.threadgroups[0];
    const size_t kvHead = group / l.threadgroups[0] % p.kvHeads, b = group / l.threadgroups[0] / p.kvHeads;
    const size_t first = block * p.groupRows;
    const int rows = int(allRows - first < p.groupRows ? allRows - first : p.groupRows);
    const size_t length = uint32_t(lengths.read(b));
    if (const int32_t failed = check_length<SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS>(l, p, length, b)) return failed;
    const auto visible = [&](int row) { return p.causal ? length - p.tokens + (first + row) / share + 1 : length; };
    const auto address = [&](int row) {
      const size_t t = (first + row) / share, head = kvHead * share + (first + row) % share;
      return ((b * p.tokens + t) * p.heads + head) * dim;
    };
    const size_t end = visible(rows - 1);
    const C* kRows = l.buffer<const C>(SDPA_K_CACHE) + (b * p.kvHeads + kvHead) * p.capacity * dim;
    const C* vRows = l.buffer<const C>(SDPA_V_CACHE) + (b * p.kvHeads + kvHead) * p.capacity * dim;

    for (int row = 0; row < rows; ++row) {
      const X* from = q + address(row);
      float* to = queries + row * width;
      states[row] = {};
      if constexpr (kBf16) {
        memcpy(to, from, dim * sizeof(X));
        memset(reinterpret_cast<X*>(to) + dim, 0, (2 * dimSteps - dim) * sizeof(X));
      } else {
        for_lanes(
            dim, [&](size_t i) { store(to + i, load(from + i)); },
            [&](size_t i, int n) { store_partial(to + i, load_partial(from + i, n), n); });
      }
    }
    for (size_t k0 = 0; k0 < end; k0 += kBlockKeys) {
      const int count = int(end - k0 < kBlockKeys ? end - k0 : kBlockKeys);
      for (int j = 0; j < count; j += kPanelColumns)
        pack_transposed(kRows + (k0 + j) * dim, dim, count - j, dim, kBlockKeys * dim,
                        reinterpret_cast<E*>(keys) + j / kPanelColumns * keyPanel);
      for (size_t d = 0; d < dim; d += kPanelColumns)
        pack(vRows + k0 * dim + d, dim, int(dim - d), size_t(count), ptrdiff_t(kBlockKeys * dim),
             values + d / kPanelColumns * valuePanel);
      for (int row = 0; row < rows; row += kPanelRows) {
        const int some = rows - row < kPanelRows ? rows - row : kPanelRows;
        // Keys of this block that a row sees.
        const auto seen = [&](int r) {
          const size_t n = visible(r);
          return int(n <= k0 ? 0 : n - k0 < kBlockKeys ? n - k0 : kBlockKeys);
        };
        const int most = seen(row + some - 1), common = seen(row);
        if (most == 0) continue;
        for (int j = 0; j < most; j += kPanelColumns) {
          const int vectors = (most - j + kLanes - 1) / kLanes;
          multiply_panel(some, vectors < kTileVectors ? vectors : kTileVectors,
                         reinterpret_cast<const Left<E>*>(queries + row * width),
                         width * sizeof(float) / sizeof(Left<E>),
                         reinterpret_cast<const E*>(keys) + j / kPanelColumns * keyPanel, dimSteps, scores + j,
                         kBlockKeys, nullptr);
        }
        int counts[kPanelRows];
        float factors[kSoftmaxRows];
        for (int r = 0; r < some; ++r) counts[r] = seen(row + r);
        softmax_rows(scores, some, counts, p.scale, states + row, factors);
        for (size_t d = 0; d < dim; d += kPanelColumns) {
          const float* panel = values + d / kPanelColumns * valuePanel;
          const size_t vectors = (dim - d + kLanes - 1) / kLanes;
          const int v = int(vectors < kTileVectors ? vectors : kTileVectors);
          float* sum = sums + row * width + d;
          multiply_panel(some, v, scores, kBlockKeys, panel, common, sum, width, k0 > 0 ? factors : nullptr);
          for (int r = 0; r < some; ++r)
            if (counts[r] > common)
              multiply_panel(1, v, scores + r * kBlockKeys + common, 0, panel + common * kPanelColumns,
                             counts[r] - common, sum + r * width, width, kKeep);
        }
      }
    }
    for (int row = 0; row < rows; ++row) {
      const float* from = sums + row * width;
      X* to = out + address(row);
      const vf32 inverse = splat(end == 0 ? 0.0f : 1 / states[row].sum);
      for_lanes(
          dim, [&](size_t i) { store(to + i, end == 0 ? vf32{} : load(from + i) * inverse); },
          [&](size_t i, int n) { store_partial(to + i, end == 0 ? vf32{} : load_partial(from + i, n) * inverse, n); });
    }
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(sdpa_f32_f32, sdpa<float, float>)
MLXTS_KERNEL(sdpa_f32_f16, sdpa<float, f16>)
MLXTS_KERNEL(sdpa_f32_bf16, sdpa<float, bf16>)
MLXTS_KERNEL(sdpa_f16_f32, sdpa<f16, float>)
MLXTS_KERNEL(sdpa_f16_f16, sdpa<f16, f16>)
MLXTS_KERNEL(sdpa_f16_bf16, sdpa<f16, bf16>)
MLXTS_KERNEL(sdpa_bf16_f32, sdpa<bf16, float>)
MLXTS_KERNEL(sdpa_bf16_f16, sdpa<bf16, f16>)
MLXTS_KERNEL(sdpa_bf16_bf16, sdpa<bf16, bf16>)
