// Generated from the declaration of sigmoid_gate; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SIGMOID_GATE_X 0  // read
#define SIGMOID_GATE_GATE 1  // read
#define SIGMOID_GATE_OUT 2  // write
#define SIGMOID_GATE_PARAMS 3

struct SigmoidGateParams {
  uint32_t block;
  uint32_t tail;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SigmoidGateParams) == 12, "SigmoidGateParams must match the declaration of sigmoid_gate");
#ifdef __METAL_VERSION__
struct SigmoidGateScratch {
  threadgroup uchar* memory;
};
inline SigmoidGateScratch scratch_of(threadgroup uchar* memory, constant SigmoidGateParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SigmoidGateScratch {
  uint8_t* memory;
};
inline SigmoidGateScratch scratch_of(const MlxtsCpuLaunch& l, const SigmoidGateParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
