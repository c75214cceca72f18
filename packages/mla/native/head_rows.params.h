// Generated from the declaration of head_rows; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define HEAD_ROWS_X 0  // read
#define HEAD_ROWS_WEIGHT 1  // read
#define HEAD_ROWS_SCALES 2  // read?
#define HEAD_ROWS_BIASES 3  // read?
#define HEAD_ROWS_OUT 4  // write
#define HEAD_ROWS_PARAMS 5
#define HEAD_ROWS_HAS_SCALES 4u
#define HEAD_ROWS_HAS_BIASES 8u
#define HEAD_ROWS_TOKENS 8
#define HEAD_ROWS_GROUP_COLUMNS 128
#ifdef __METAL_VERSION__
#define HEAD_ROWS_SIMDGROUPS 8
#endif

struct HeadRowsParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t n;
  uint32_t k;
  uint32_t xDim;
  uint32_t cols;
  uint32_t headRows;
  uint32_t firstRow;
  uint32_t groupSize;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(HeadRowsParams) == 44, "HeadRowsParams must match the declaration of head_rows");
#ifdef __METAL_VERSION__
struct HeadRowsScratch {
  threadgroup float* partial;
};
inline HeadRowsScratch scratch_of(threadgroup uchar* memory, constant HeadRowsParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct HeadRowsScratch {
  float* decoded;
};
inline HeadRowsScratch scratch_of(const MlxtsCpuLaunch& l, const HeadRowsParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
