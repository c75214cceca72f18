// Generated from the declaration of conv_rollback; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(ConvRollbackParams) == 16, "ConvRollbackParams must match the declaration of conv_rollback");
