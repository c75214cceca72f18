// Generated from the declaration of gather_matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_MATVEC_X 0  // read
#define GATHER_MATVEC_WEIGHT 1  // read
#define GATHER_MATVEC_RHS_INDICES 2  // read
#define GATHER_MATVEC_LHS_INDICES 3  // read?
#define GATHER_MATVEC_STARTS 4  // read?
#define GATHER_MATVEC_OUT 5  // write
#define GATHER_MATVEC_PARAMS 6
#define GATHER_MATVEC_FAULT 7
#define GATHER_MATVEC_HAS_LHS_INDICES 8u
#define GATHER_MATVEC_HAS_STARTS 16u
#define GATHER_MATVEC_FAULT_RHS_INDICES 1
#define GATHER_MATVEC_FAULT_LHS_INDICES 2
#define GATHER_MATVEC_FAULT_STARTS 3
#define GATHER_MATVEC_ROWS 8
#ifdef __METAL_VERSION__
#define GATHER_MATVEC_MOST_ELEMENTS 2147483647
#define GATHER_MATVEC_SIMDGROUPS 4
#define GATHER_MATVEC_SIMDGROUP_COLUMNS 4
#else
#define GATHER_MATVEC_MOST_ELEMENTS 262144
#endif

struct GatherMatvecParams {
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
  uint32_t groupColumns;
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t groupColumns;
  uint32_t width;
  uint32_t scratch[1];  // byte offsets
#endif
};
static_assert(sizeof(GatherMatvecParams) == 88, "GatherMatvecParams must match the declaration of gather_matvec");
#ifdef __METAL_VERSION__
struct GatherMatvecScratch {
  threadgroup float* partial;
  threadgroup uint* held;
};
inline GatherMatvecScratch scratch_of(threadgroup uchar* memory, constant GatherMatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
  };
}
#else
struct GatherMatvecScratch {
  float* x;
};
inline GatherMatvecScratch scratch_of(const MlxtsCpuLaunch& l, const GatherMatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
