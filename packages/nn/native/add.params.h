// Generated from the declaration of add; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define ADD_A 0  // read
#define ADD_B 1  // read
#define ADD_OUT 2  // write
#define ADD_PARAMS 3

struct AddParams {
  uint32_t block;
  uint32_t tail;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(AddParams) == 12, "AddParams must match the declaration of add");
#ifdef __METAL_VERSION__
struct AddScratch {
  threadgroup uchar* memory;
};
inline AddScratch scratch_of(threadgroup uchar* memory, constant AddParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct AddScratch {
  uint8_t* memory;
};
inline AddScratch scratch_of(const MlxtsCpuLaunch& l, const AddParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
