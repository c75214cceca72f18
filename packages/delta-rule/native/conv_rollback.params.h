// Generated from the declaration of conv_rollback; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CONV_ROLLBACK_HISTORY 0  // read
#define CONV_ROLLBACK_REJECTED 1  // read
#define CONV_ROLLBACK_FINAL_STATE 2  // write
#define CONV_ROLLBACK_PARAMS 3
#define CONV_ROLLBACK_FAULT 4
#define CONV_ROLLBACK_FAULT_REJECTED 1

struct ConvRollbackParams {
  uint32_t sequences;
  uint32_t historyRows;
  uint32_t channels;
  uint32_t kernelSize;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ConvRollbackParams) == 20, "ConvRollbackParams must match the declaration of conv_rollback");
#ifdef __METAL_VERSION__
struct ConvRollbackScratch {
  threadgroup uchar* memory;
};
inline ConvRollbackScratch scratch_of(threadgroup uchar* memory, constant ConvRollbackParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ConvRollbackScratch {
  uint8_t* memory;
};
inline ConvRollbackScratch scratch_of(const MlxtsCpuLaunch& l, const ConvRollbackParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
