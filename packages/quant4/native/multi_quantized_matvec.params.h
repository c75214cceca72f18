// Generated from the declaration of multi_quantized_matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MULTI_QUANTIZED_MATVEC_X 0  // read
#define MULTI_QUANTIZED_MATVEC_A_WEIGHT 1  // read
#define MULTI_QUANTIZED_MATVEC_A_SCALES 2  // read
#define MULTI_QUANTIZED_MATVEC_A_BIASES 3  // read
#define MULTI_QUANTIZED_MATVEC_B_WEIGHT 4  // read
#define MULTI_QUANTIZED_MATVEC_B_SCALES 5  // read
#define MULTI_QUANTIZED_MATVEC_B_BIASES 6  // read
#define MULTI_QUANTIZED_MATVEC_C_WEIGHT 7  // read?
#define MULTI_QUANTIZED_MATVEC_C_SCALES 8  // read?
#define MULTI_QUANTIZED_MATVEC_C_BIASES 9  // read?
#define MULTI_QUANTIZED_MATVEC_D_WEIGHT 10  // read?
#define MULTI_QUANTIZED_MATVEC_D_SCALES 11  // read?
#define MULTI_QUANTIZED_MATVEC_D_BIASES 12  // read?
#define MULTI_QUANTIZED_MATVEC_OUT_A 13  // write
#define MULTI_QUANTIZED_MATVEC_OUT_B 14  // write
#define MULTI_QUANTIZED_MATVEC_OUT_C 15  // write?
#define MULTI_QUANTIZED_MATVEC_OUT_D 16  // write?
#define MULTI_QUANTIZED_MATVEC_PARAMS 17
#define MULTI_QUANTIZED_MATVEC_HAS_C_WEIGHT 128u
#define MULTI_QUANTIZED_MATVEC_HAS_C_SCALES 256u
#define MULTI_QUANTIZED_MATVEC_HAS_C_BIASES 512u
#define MULTI_QUANTIZED_MATVEC_HAS_D_WEIGHT 1024u
#define MULTI_QUANTIZED_MATVEC_HAS_D_SCALES 2048u
#define MULTI_QUANTIZED_MATVEC_HAS_D_BIASES 4096u
#define MULTI_QUANTIZED_MATVEC_HAS_OUT_C 32768u
#define MULTI_QUANTIZED_MATVEC_HAS_OUT_D 65536u

struct MultiQuantizedMatvecParams {
  uint32_t m;
  uint32_t rowsA;
  uint32_t rowsB;
  uint32_t rowsC;
  uint32_t rowsD;
  uint32_t cols;
  uint32_t groupSize;
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
static_assert(sizeof(MultiQuantizedMatvecParams) == 36, "MultiQuantizedMatvecParams must match the declaration of multi_quantized_matvec");
#else
static_assert(sizeof(MultiQuantizedMatvecParams) == 56, "MultiQuantizedMatvecParams must match the declaration of multi_quantized_matvec");
#endif
#ifdef __METAL_VERSION__
struct MultiQuantizedMatvecScratch {
  threadgroup float* sums;
};
inline MultiQuantizedMatvecScratch scratch_of(threadgroup uchar* memory, constant MultiQuantizedMatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct MultiQuantizedMatvecScratch {
  uint16_t* ordered;
  float* sums;
  uint32_t* prepared;
};
inline MultiQuantizedMatvecScratch scratch_of(const MlxtsCpuLaunch& l, const MultiQuantizedMatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint16_t*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
