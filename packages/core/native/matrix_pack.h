// Packing of a matrix b into panels (matrix_microkernel.h): [k][kPanelColumns], padded with zeros. `ahead` is how many
// elements after those packed now the next ones lie: short pieces of rows are nothing that the hardware prefetches.
#pragma once
#include "matrix_microkernel.h"
#include "matrix_transpose.h"

namespace mlxts {

// panel[k][j] = b[j][k] for j < columns, else 0: b is stored transposed.
template <typename B>
void pack_transposed(const B* b, size_t stride, int columns, size_t depth, ptrdiff_t ahead, float* panel) {
  for (int v = 0; v < kTileVectors; ++v, panel += kLanes) {
    const int valid = columns - v * kLanes;
    const B* rows = b + v * kLanes * stride;
    size_t k = 0;
    if constexpr (std::is_same_v<B, bf16>) {
      vu32 block[kLanes];
      for (; k + 2 * kLanes <= depth; k += 2 * kLanes) {
        for (int i = 0; i < kLanes; ++i) {
          const bf16* from = rows + i * stride + k;
          __builtin_prefetch(from + ahead, 0, 2);
          block[i] = i < valid ? load_bf16x2(from) : vu32{};
        }
        transpose(block);
        for (int i = 0; i < kLanes; ++i) {
          store(panel + (k + 2 * i) * kPanelColumns, widen_first(block[i]));
          store(panel + (k + 2 * i + 1) * kPanelColumns, widen_second(block[i]));
        }
      }
    }
    vf32 block[kLanes];
    for (; k < depth; k += kLanes) {
      const int n = depth - k < kLanes ? int(depth - k) : kLanes;
      for (int i = 0; i < kLanes; ++i) {
        const B* from = rows + i * stride + k;
        __builtin_prefetch(from + ahead, 0, 2);
        block[i] = i >= valid ? vf32{} : n == kLanes ? load(from) : load_partial(from, n);
      }
      transpose(block);
      for (int i = 0; i < n; ++i) store(panel + (k + i) * kPanelColumns, block[i]);
    }
  }
}

// panel[k][j] = b[k][j] for j < columns, else 0.
template <typename B>
void pack(const B* b, size_t stride, int columns, size_t depth, ptrdiff_t ahead, float* panel) {
  for (size_t k = 0; k < depth; ++k, b += stride, panel += kPanelColumns)
    for (int j = 0; j < kPanelColumns; j += kLanes) {
      __builtin_prefetch(b + j + ahead, 0, 2);
      store(panel + j, columns - j >= kLanes ? load(b + j) : columns > j ? load_partial(b + j, columns - j) : vf32{});
    }
}

// 2 · kLanes neighbors of two rows become pairs of one column each.
MLXTS_INLINE void interleave_bf16(vu32 a, vu32 b, vu32& low, vu32& high) {
  typedef uint16_t Halves __attribute__((vector_size(kLanes * 4)));
  const Halves x = reinterpret_cast<Halves>(a), y = reinterpret_cast<Halves>(b);
  low = reinterpret_cast<vu32>(interleave_low(x, y));
  high = reinterpret_cast<vu32>(interleave_high(x, y));
}

// The same panels of bf16x2: [⌈depth / 2⌉][kPanelColumns], an odd last element beside a 0.
inline void pack_transposed(const bf16* b, size_t stride, int columns, size_t depth, ptrdiff_t ahead, bf16x2* panel) {
  for (int v = 0; v < kTileVectors; ++v, panel += kLanes) {
    const int valid = columns - v * kLanes;
    const bf16* rows = b + v * kLanes * stride;
    vu32 block[kLanes];
    for (size_t k = 0; k < depth; k += 2 * kLanes) {
      const size_t n = depth - k < 2 * kLanes ? depth - k : 2 * kLanes;
      for (int i = 0; i < kLanes; ++i) {
        const bf16* from = rows + i * stride + k;
        __builtin_prefetch(from + ahead, 0, 2);
        if (i >= valid) {
          block[i] = vu32{};
        } else if (n == 2 * kLanes) {
          block[i] = load_bf16x2(from);
        } else {
          bf16 some[2 * kLanes] = {};
          memcpy(some, from, n * sizeof(bf16));
          block[i] = load_bf16x2(some);
        }
      }
      transpose(block);
      for (size_t i = 0; 2 * i < n; ++i) store_bf16x2(panel + (k / 2 + i) * kPanelColumns, block[i]);
    }
  }
}
inline void pack(const bf16* b, size_t stride, int columns, size_t depth, ptrdiff_t ahead, bf16x2* panel) {
  const auto bits = [](const bf16* from, int n) {
    vu16 some = {};
    if (n >= kLanes)
      memcpy(&some, from, sizeof some);
    else if (n > 0)
      memcpy(&some, from, n * sizeof(bf16));
    return widen_u16(some);
  };
  for (size_t k = 0; k < depth; k += 2, b += 2 * stride, panel += kPanelColumns) {
    if (columns >= kPanelColumns && k + 1 < depth) {
      for (int j = 0; j < kPanelColumns; j += 2 * kLanes) {
        __builtin_prefetch(b + j + ahead, 0, 2);
        __builtin_prefetch(b + stride + j + ahead, 0, 2);
        vu32 low, high;
        interleave_bf16(load_bf16x2(b + j), load_bf16x2(b + stride + j), low, high);
        store_bf16x2(panel + j, low);
        store_bf16x2(panel + j + kLanes, high);
      }
      continue;
    }
    for (int j = 0; j < kPanelColumns; j += kLanes) {
      __builtin_prefetch(b + j + ahead, 0, 2);
      __builtin_prefetch(b + stride + j + ahead, 0, 2);
      store_bf16x2(panel + j, bits(b + j, columns - j) | bits(b + stride + j, k + 1 < depth ? columns - j : 0) << 16);
    }
  }
}

}  // namespace mlxts
