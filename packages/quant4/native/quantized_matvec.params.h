// Generated from the declaration of quantized_matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_MATVEC_X 0  // read
#define QUANTIZED_MATVEC_WEIGHT 1  // read
#define QUANTIZED_MATVEC_SCALES 2  // read
#define QUANTIZED_MATVEC_BIASES 3  // read
#define QUANTIZED_MATVEC_BIAS 4  // read?
#define QUANTIZED_MATVEC_OUT 5  // write
#define QUANTIZED_MATVEC_PARAMS 6
#define QUANTIZED_MATVEC_HAS_BIAS 16u
#define QUANTIZED_MATVEC_MOST_M 8
#ifdef __METAL_VERSION__
#define QUANTIZED_MATVEC_SIMDGROUP_ROWS 4
#define QUANTIZED_MATVEC_TILE_ROWS 16
#define QUANTIZED_MATVEC_BLOCK_UNITS 4
#define QUANTIZED_MATVEC_MOST_SPANS 64
#define QUANTIZED_MATVEC_ROW_THREADS 384
#define QUANTIZED_MATVEC_SPANS_AHEAD 4
#else
#define QUANTIZED_MATVEC_BLOCK_ROWS 16
#define QUANTIZED_MATVEC_UNIT 128
#define QUANTIZED_MATVEC_BYTE_UNITS 127
#define QUANTIZED_MATVEC_PREPARED_WORDS 4
#endif

struct QuantizedMatvecParams {
  uint32_t m;
  uint32_t rows;
  uint32_t cols;
  uint32_t groupSize;
  uint32_t biasDtype;
  uint32_t batch0;
  uint32_t batch1;
  uint32_t xStride0;
  uint32_t xStride1;
  uint32_t xStride2;
  uint32_t qStride0;
  uint32_t qStride1;
  uint32_t qStride2;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t columnStride;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(QuantizedMatvecParams) == 60, "QuantizedMatvecParams must match the declaration of quantized_matvec");
#else
static_assert(sizeof(QuantizedMatvecParams) == 80, "QuantizedMatvecParams must match the declaration of quantized_matvec");
#endif
#ifdef __METAL_VERSION__
struct QuantizedMatvecScratch {
  threadgroup float* sums;
};
inline QuantizedMatvecScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedMatvecScratch {
  uint16_t* ordered;
  float* sums;
  uint32_t* prepared;
};
inline QuantizedMatvecScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint16_t*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
