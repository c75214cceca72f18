// Generated from the declaration of sample; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SAMPLE_LOGITS 0  // read
#define SAMPLE_STEP 1  // read
#define SAMPLE_WEIGHTS 2  // write
#define SAMPLE_IDS 3  // write
#define SAMPLE_PARAMS 4
#define SAMPLE_SHARED_WORDS 1061

struct SampleParams {
  uint32_t dim;
  uint32_t blockSize;
  uint32_t topK;
  uint32_t topP;
  float inverseTemperature;
  uint32_t seed;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SampleParams) == 28, "SampleParams must match the declaration of sample");
#ifdef __METAL_VERSION__
struct SampleScratch {
  threadgroup uchar* memory;
};
inline SampleScratch scratch_of(threadgroup uchar* memory, constant SampleParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SampleScratch {
  uint8_t* memory;
};
inline SampleScratch scratch_of(const MlxtsCpuLaunch& l, const SampleParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
