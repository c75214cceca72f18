// Generated from the declaration of gather_matvec_swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_MATVEC_SWIGLU_X 0  // read
#define GATHER_MATVEC_SWIGLU_GATE 1  // read
#define GATHER_MATVEC_SWIGLU_UP 2  // read
#define GATHER_MATVEC_SWIGLU_RHS_INDICES 3  // read
#define GATHER_MATVEC_SWIGLU_LHS_INDICES 4  // read?
#define GATHER_MATVEC_SWIGLU_GATE_STARTS 5  // read?
#define GATHER_MATVEC_SWIGLU_UP_STARTS 6  // read?
#define GATHER_MATVEC_SWIGLU_OUT 7  // write
#define GATHER_MATVEC_SWIGLU_PARAMS 8
#define GATHER_MATVEC_SWIGLU_FAULT 9
#define GATHER_MATVEC_SWIGLU_HAS_LHS_INDICES 16u
#define GATHER_MATVEC_SWIGLU_HAS_GATE_STARTS 32u
#define GATHER_MATVEC_SWIGLU_HAS_UP_STARTS 64u
#define GATHER_MATVEC_SWIGLU_FAULT_RHS_INDICES 1
#define GATHER_MATVEC_SWIGLU_FAULT_LHS_INDICES 2
#define GATHER_MATVEC_SWIGLU_FAULT_GATE_STARTS 3
#define GATHER_MATVEC_SWIGLU_FAULT_UP_STARTS 4
#define GATHER_MATVEC_SWIGLU_ROWS 8
#ifdef __METAL_VERSION__
#define GATHER_MATVEC_SWIGLU_MOST_ELEMENTS 2147483647
#define GATHER_MATVEC_SWIGLU_SIMDGROUPS 4
#define GATHER_MATVEC_SWIGLU_SIMDGROUP_COLUMNS 4
#else
#define GATHER_MATVEC_SWIGLU_MOST_ELEMENTS 262144
#endif

struct GatherMatvecSwigluParams {
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
  uint32_t gateEnd;
  uint32_t upEnd;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t groupColumns;
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t groupColumns;
  uint32_t upColumns;
  uint32_t width;
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatherMatvecSwigluParams) == 92, "GatherMatvecSwigluParams must match the declaration of gather_matvec_swiglu");
#else
static_assert(sizeof(GatherMatvecSwigluParams) == 100, "GatherMatvecSwigluParams must match the declaration of gather_matvec_swiglu");
#endif
#ifdef __METAL_VERSION__
struct GatherMatvecSwigluScratch {
  threadgroup float* partial;
  threadgroup uint* held;
};
inline GatherMatvecSwigluScratch scratch_of(threadgroup uchar* memory, constant GatherMatvecSwigluParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
  };
}
#else
struct GatherMatvecSwigluScratch {
  float* x;
  float* ups;
};
inline GatherMatvecSwigluScratch scratch_of(const MlxtsCpuLaunch& l, const GatherMatvecSwigluParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
