// Generated from the declaration of gather_matmul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_MATMUL_X 0  // read
#define GATHER_MATMUL_WEIGHT 1  // read
#define GATHER_MATMUL_RHS_INDICES 2  // read
#define GATHER_MATMUL_LHS_INDICES 3  // read?
#define GATHER_MATMUL_STARTS 4  // read?
#define GATHER_MATMUL_ORDER 5  // read?
#define GATHER_MATMUL_OFFSETS 6  // read?
#define GATHER_MATMUL_OUT 7  // write
#define GATHER_MATMUL_PARAMS 8
#define GATHER_MATMUL_FAULT 9
#define GATHER_MATMUL_HAS_LHS_INDICES 8u
#define GATHER_MATMUL_HAS_STARTS 16u
#define GATHER_MATMUL_HAS_ORDER 32u
#define GATHER_MATMUL_HAS_OFFSETS 64u
#define GATHER_MATMUL_FAULT_RHS_INDICES 1
#define GATHER_MATMUL_FAULT_LHS_INDICES 2
#define GATHER_MATMUL_FAULT_OFFSETS 3
#define GATHER_MATMUL_FAULT_ORDER 4
#define GATHER_MATMUL_FAULT_STARTS 5
#ifdef __METAL_VERSION__
#define GATHER_MATMUL_THREADS 128
#define GATHER_MATMUL_ROWS 64
#define GATHER_MATMUL_COLUMNS 64
#define GATHER_MATMUL_PART_ROWS 32
#define GATHER_MATMUL_PART_COLUMNS 32
#define GATHER_MATMUL_DEPTH_BYTES 64
#else
#define GATHER_MATMUL_PANEL_ROWS 6
#define GATHER_MATMUL_GROUP_COLUMNS 64
#define GATHER_MATMUL_DEPTH 128
#define GATHER_MATMUL_MOST_ELEMENTS 262144
#define GATHER_MATMUL_LEFT_BYTES 32768
#endif

struct GatherMatmulParams {
  uint32_t pairs;
  uint32_t m;
  uint32_t matrices;
  uint32_t lefts;
  uint32_t rhsCount;
  uint32_t lhsCount;
  uint32_t signedIndices;
  uint32_t size0;
  uint32_t size1;
  uint32_t left0;
  uint32_t left1;
  uint32_t left2;
  uint32_t right0;
  uint32_t right1;
  uint32_t right2;
  uint32_t n;
  uint32_t k;
  uint32_t startEnd;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[5];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t unpackedRows;
  uint32_t width;
  uint32_t tileColumns;
  uint32_t scratch[8];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatherMatmulParams) == 96, "GatherMatmulParams must match the declaration of gather_matmul");
#else
static_assert(sizeof(GatherMatmulParams) == 124, "GatherMatmulParams must match the declaration of gather_matmul");
#endif
#ifdef __METAL_VERSION__
struct GatherMatmulScratch {
  threadgroup uchar* x;
  threadgroup uchar* weight;
  threadgroup uint* xRows;
  threadgroup uint* outRows;
  threadgroup uint* slot;
};
inline GatherMatmulScratch scratch_of(threadgroup uchar* memory, constant GatherMatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup uint*)(memory + p.scratch[2]),
      (threadgroup uint*)(memory + p.scratch[3]),
      (threadgroup uint*)(memory + p.scratch[4]),
  };
}
#else
struct GatherMatmulScratch {
  float* panels;
  float* converted;
  float* sums;
  uint8_t* tiles;
  uint8_t* left;
  float* x;
  uint32_t* xRows;
  uint32_t* outRows;
};
inline GatherMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const GatherMatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[3]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[6]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[7]),
  };
}
#endif
