// Generated from the declaration of moe_order; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MOE_ORDER_INDICES 0  // read
#define MOE_ORDER_ORDER 1  // write
#define MOE_ORDER_OFFSETS 2  // write
#define MOE_ORDER_PARAMS 3
#define MOE_ORDER_FAULT 4
#define MOE_ORDER_FAULT_INDEX 1
#ifdef __METAL_VERSION__
#define MOE_ORDER_EXPERTS_TOGETHER 8
#endif

struct MoeOrderParams {
  uint32_t pairs;
  uint32_t experts;
#ifndef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MoeOrderParams) == 8, "MoeOrderParams must match the declaration of moe_order");
#else
static_assert(sizeof(MoeOrderParams) == 12, "MoeOrderParams must match the declaration of moe_order");
#endif
#ifndef __METAL_VERSION__
struct MoeOrderScratch {
  uint32_t* next;
};
inline MoeOrderScratch scratch_of(const MlxtsCpuLaunch& l, const MoeOrderParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint32_t*>(memory + p.scratch[0]),
  };
}
#endif
