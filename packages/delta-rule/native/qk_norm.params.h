// Generated from the declaration of qk_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QK_NORM_Q 0  // read
#define QK_NORM_K 1  // read
#define QK_NORM_MASK 2  // read?
#define QK_NORM_Q_UNIT 3  // write
#define QK_NORM_K_UNIT 4  // write
#define QK_NORM_PARAMS 5
#define QK_NORM_HAS_MASK 4u

struct QkNormParams {
  uint32_t rows;
  uint32_t keyHeads;
  uint32_t dim;
  uint32_t rowsPerThreadgroup;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(QkNormParams) == 36, "QkNormParams must match the declaration of qk_norm");
#ifdef __METAL_VERSION__
struct QkNormScratch {
  threadgroup uchar* memory;
};
inline QkNormScratch scratch_of(threadgroup uchar* memory, constant QkNormParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QkNormScratch {
  uint8_t* memory;
};
inline QkNormScratch scratch_of(const MlxtsCpuLaunch& l, const QkNormParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
