// Up to eight rows of x. One simdgroup: four rows of one of the matrices. Threadgroups of a matrix follow those of the
// one before.
#include "multi_quantized_matvec.params.h"
#include "store_product_metal.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_tiles.h"
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

// The part of a threadgroup, which is then counted from the part's first one on.
template <typename S, typename O>
METAL_FUNC Part<S, O> part_of(thread uint& group, thread const Part<S, O> (&parts)[4], uint groupRows) {
  Part<S, O> part = parts[0];
  if (comes_after(group, parts[0].rows, groupRows)) {
    part = parts[1];
    if (comes_after(group, parts[1].rows, groupRows)) {
      part = parts[2];
      if (comes_after(group, parts[2].rows, groupRows)) part = parts[3];
    }
  }
  return part;
}

template <typename X, typename S, typename O, int Bits>
kernel void multi_quantized_matvec(
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
  const Part<S, O> parts[4] = {{aWeight, aScales, aBiases, outA, p.rowsA},
                               {bWeight, bScales, bBiases, outB, p.rowsB},
                               {cWeight, cScales, cBiases, outC, p.rowsC},
                               {dWeight, dScales, dBiases, outD, p.rowsD}};
  const Part<S, O> part = part_of(group, parts, groupRows);
  const uint row0 = group * groupRows;
  const AffineMatrix<S, Bits> w = {part.weight, part.scales, part.biases, part.rows, p.cols, p.groupSize};
  store_product(x, p.m, rows_from(w, row0), part.out + row0, part.rows, NothingAdded(), lane, simdgroup);
}

#ifdef MLXTS_CUDA
template <typename S, typename O>
struct TilesOfParts {
  Part<S, O> parts[4];
  uint cols, groupSize;

  METAL_FUNC AffineMatrix<S, 4> rows(uint tile, uint) const thread {
    const Part<S, O> part = part_of(tile, parts, kTileRows);
    const AffineMatrix<S, 4> w = {part.weight, part.scales, part.biases, part.rows, cols, groupSize};
    return rows_from(w, tile * kTileRows);
  }
  METAL_FUNC void store(uint tile, uint r, thread float (&products)[1]) const thread {
    const Part<S, O> part = part_of(tile, parts, kTileRows);
    const uint row = tile * kTileRows + r;
    if (row < part.rows) part.out[row] = O(products[0]);
  }
};

// One row of x against tiles.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(256)]] kernel void multi_quantized_matvec_tiles(
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
    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const TilesOfParts<S, O> tiles = {{{aWeight, aScales, aBiases, outA, p.rowsA},
                                     {bWeight, bScales, bBiases, outB, p.rowsB},
                                     {cWeight, cScales, cBiases, outC, p.rowsC},
                                     {dWeight, dScales, dBiases, outD, p.rowsD}},
                                    p.cols,
                                    p.groupSize};
  uint count = 0;
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) count += (tiles.parts[i].rows + kTileRows - 1) / kTileRows;
  multiply_tiles<S, 1>(x, tiles, count, p.cols, p.groupSize, group, lane, simdgroup);
}

#define TILES(S, O)                                                                                    \
  template [[host_name("multi_quantized_matvec_bf16_" #S "_" #O "_b4_tiles")]] [[kernel]] decltype( \
      multi_quantized_matvec_tiles<S, O>) multi_quantized_matvec_tiles<S, O>;
MLXTS_TILES(TILES)
#endif

#define MATVEC(X, S, O, bits)                                                                      \
  template [[host_name("multi_quantized_matvec_" #X "_" #S "_" #O "_b" #bits)]] [[kernel]] decltype( \
      multi_quantized_matvec<X, S, O, bits>) multi_quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
