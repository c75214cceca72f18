// Generated from the declaration of delta_gates; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define DELTA_GATES_A 0  // read
#define DELTA_GATES_B 1  // read
#define DELTA_GATES_A_LOG 2  // read
#define DELTA_GATES_DT_BIAS 3  // read
#define DELTA_GATES_G 4  // write
#define DELTA_GATES_BETA 5  // write
#define DELTA_GATES_PARAMS 6

struct DeltaGatesParams {
  uint32_t rows;
  uint32_t heads;
  uint32_t channels;
  uint32_t rowsPerThreadgroup;
  float betaScale;
  float lowerBound;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(DeltaGatesParams) == 28, "DeltaGatesParams must match the declaration of delta_gates");
#ifdef __METAL_VERSION__
struct DeltaGatesScratch {
  threadgroup uchar* memory;
};
inline DeltaGatesScratch scratch_of(threadgroup uchar* memory, constant DeltaGatesParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct DeltaGatesScratch {
  uint8_t* memory;
};
inline DeltaGatesScratch scratch_of(const MlxtsCpuLaunch& l, const DeltaGatesParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
