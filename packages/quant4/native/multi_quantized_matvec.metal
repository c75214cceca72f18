// Up to eight rows of x. One simdgroup: four rows of one of the matrices. Threadgroups of a matrix follow those of the
// one before.
#include "multi_quantized_matvec.params.h"
#include "store_product_metal.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_row.h"
#endif

using namespace metal;
using namespace mlxts;

template <typename S, typename O>
struct Part {
  device const uint* weight;
  device const S* scales;
  device const S* biases;
  device O* out;
  uint rows;
};

// Whether a threadgroup comes after those of a part; then it is counted from the next part on.
METAL_FUNC bool comes_after(thread uint& group, uint rows, uint groupRows) {
  const uint groups = (rows + groupRows - 1) / groupRows;
  if (group < groups) return false;
  group -= groups;
  return true;
}

#ifdef MLXTS_CUDA
// Threads at most: one row of x takes more, and leaves fewer registers for each.
#define MULTI_THREADS [[max_total_threads_per_threadgroup(256)]]
#else
#define MULTI_THREADS
#endif

template <typename X, typename S, typename O, int Bits>
MULTI_THREADS kernel void multi_quantized_matvec(
    device const X* x [[buffer(MULTI_QUANTIZED_MATVEC_X)]],
    device const uint* aWeight [[buffer(MULTI_QUANTIZED_MATVEC_A_WEIGHT)]],
    device const S* aScales [[buffer(MULTI_QUANTIZED_MATVEC_A_SCALES)]],
    device const S* aBiases [[buffer(MULTI_QUANTIZED_MATVEC_A_BIASES)]],
    device const uint* bWeight [[buffer(MULTI_QUANTIZED_MATVEC_B_WEIGHT)]],
    device const S* bScales [[buffer(MULTI_QUANTIZED_MATVEC_B_SCALES)]],
    device const S* bBiases [[buffer(MULTI_QUANTIZED_MATVEC_B_BIASES)]],
    device const uint* cWeight [[buffer(MULTI_QUANTIZED_MATVEC_C_WEIGHT)]],
    device const S* cScales [[buffer(MULTI_QUANTIZED_MATVEC_C_SCALES)]],
    device const S* cBiases [[buffer(MULTI_QUANTIZED_MATVEC_C_BIASES)]],
    device const uint* dWeight [[buffer(MULTI_QUANTIZED_MATVEC_D_WEIGHT)]],
    device const S* dScales [[buffer(MULTI_QUANTIZED_MATVEC_D_SCALES)]],
    device const S* dBiases [[buffer(MULTI_QUANTIZED_MATVEC_D_BIASES)]],
    device O* outA [[buffer(MULTI_QUANTIZED_MATVEC_OUT_A)]], device O* outB [[buffer(MULTI_QUANTIZED_MATVEC_OUT_B)]],
    device O* outC [[buffer(MULTI_QUANTIZED_MATVEC_OUT_C)]], device O* outD [[buffer(MULTI_QUANTIZED_MATVEC_OUT_D)]],
    constant MultiQuantizedMatvecParams& p [[buffer(MULTI_QUANTIZED_MATVEC_PARAMS)]],
    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint groupRows = threadgroup_rows(simdgroups);
  Part<S, O> part = {aWeight, aScales, aBiases, outA, p.rowsA};
  if (comes_after(group, p.rowsA, groupRows)) {
    part = {bWeight, bScales, bBiases, outB, p.rowsB};
    if (comes_after(group, p.rowsB, groupRows)) {
      part = {cWeight, cScales, cBiases, outC, p.rowsC};
      if (comes_after(group, p.rowsC, groupRows)) part = {dWeight, dScales, dBiases, outD, p.rowsD};
    }
  }
  const uint row0 = group * groupRows;
  const AffineMatrix<S, Bits> w = {part.weight, part.scales, part.biases, part.rows, p.cols, p.groupSize};
  store_product(x, p.m, rows_from(w, row0), part.out + row0, part.rows, NothingAdded(), lane, simdgroup);
}

#ifdef MLXTS_CUDA
// Tiles of up to four matrices, one after another.
template <typename S, typename O>
struct TilesOfParts {
  Part<S, O> parts[4];
  uint cols, groupSize;

  // The matrix of a tile, which is counted from that matrix's first one on.
  METAL_FUNC Part<S, O> part_of(thread uint& tile) const thread {
    Part<S, O> part = parts[0];
    MLXTS_UNROLL for (uint n = 1; n < 4; ++n) {
      if (!comes_after(tile, part.rows, kTileRows)) break;
      part = parts[n];
    }
    return part;
  }
  METAL_FUNC uint count() const thread {
    uint count = 0;
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n) count += (parts[n].rows + kTileRows - 1) / kTileRows;
    return count;
  }
  METAL_FUNC TileOfW<S> at(uint tile) const thread {
    const Part<S, O> part = part_of(tile);
    return TilesOfOne<S>{{part.weight, part.scales, part.biases, part.rows, cols, groupSize}}.at(tile);
  }
};

// One row of x.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(QUANTIZED_MATVEC_ROW_THREADS)]] kernel void multi_quantized_matvec_row(
    device const bfloat* x [[buffer(MULTI_QUANTIZED_MATVEC_X)]],
    device const uint* aWeight [[buffer(MULTI_QUANTIZED_MATVEC_A_WEIGHT)]],
    device const S* aScales [[buffer(MULTI_QUANTIZED_MATVEC_A_SCALES)]],
    device const S* aBiases [[buffer(MULTI_QUANTIZED_MATVEC_A_BIASES)]],
    device const uint* bWeight [[buffer(MULTI_QUANTIZED_MATVEC_B_WEIGHT)]],
    device const S* bScales [[buffer(MULTI_QUANTIZED_MATVEC_B_SCALES)]],
    device const S* bBiases [[buffer(MULTI_QUANTIZED_MATVEC_B_BIASES)]],
    device const uint* cWeight [[buffer(MULTI_QUANTIZED_MATVEC_C_WEIGHT)]],
    device const S* cScales [[buffer(MULTI_QUANTIZED_MATVEC_C_SCALES)]],
    device const S* cBiases [[buffer(MULTI_QUANTIZED_MATVEC_C_BIASES)]],
    device const uint* dWeight [[buffer(MULTI_QUANTIZED_MATVEC_D_WEIGHT)]],
    device const S* dScales [[buffer(MULTI_QUANTIZED_MATVEC_D_SCALES)]],
    device const S* dBiases [[buffer(MULTI_QUANTIZED_MATVEC_D_BIASES)]],
    device O* outA [[buffer(MULTI_QUANTIZED_MATVEC_OUT_A)]], device O* outB [[buffer(MULTI_QUANTIZED_MATVEC_OUT_B)]],
    device O* outC [[buffer(MULTI_QUANTIZED_MATVEC_OUT_C)]], device O* outD [[buffer(MULTI_QUANTIZED_MATVEC_OUT_D)]],
    constant MultiQuantizedMatvecParams& p [[buffer(MULTI_QUANTIZED_MATVEC_PARAMS)]],
    uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const TilesOfParts<S, O> tiles = {{{aWeight, aScales, aBiases, outA, p.rowsA},
                                     {bWeight, bScales, bBiases, outB, p.rowsB},
                                     {cWeight, cScales, cBiases, outC, p.rowsC},
                                     {dWeight, dScales, dBiases, outD, p.rowsD}},
                                    p.cols,
                                    p.groupSize};
  const SumsOfSpans sums = sum_spans<S>(x, tiles, p.cols, p.groupSize, group, groups, lane, simdgroup);
  for (uint i = simdgroup * kSimd + lane; sums.has(i); i += simdgroups_of_threadgroup() * kSimd) {
    uint tile = sums.tile(i);
    const Part<S, O> part = tiles.part_of(tile);
    const uint row = tile * kTileRows + sums.row(i);
    if (row < part.rows) part.out[row] = O(sums.product(i, sums.row(i)));
  }
}

#define ROW(S, O)                                                                                                  \
  template [[host_name("multi_quantized_matvec_bf16_" #S "_" #O "_b4_row")]] [[kernel]] decltype( \
      multi_quantized_matvec_row<S, O>) multi_quantized_matvec_row<S, O>;
MLXTS_ROWS(ROW)
#endif

#define MATVEC(X, S, O, bits)                                                                      \
  template [[host_name("multi_quantized_matvec_" #X "_" #S "_" #O "_b" #bits)]] [[kernel]] decltype( \
      multi_quantized_matvec<X, S, O, bits>) multi_quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
