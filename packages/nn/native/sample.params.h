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
#define SAMPLE_LARGEST_WEIGHT 1073741824
#ifdef __METAL_VERSION__
#define SAMPLE_BINS 256
#else
#define SAMPLE_BLOCK 256
#endif

struct SampleParams {
  uint32_t dim;
  uint32_t topK;
  uint32_t topP;
  float inverseTemperature;
  uint32_t seed;
#ifdef __METAL_VERSION__
  uint32_t scratch[7];  // byte offsets
#else
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SampleParams) == 48, "SampleParams must match the declaration of sample");
#else
static_assert(sizeof(SampleParams) == 32, "SampleParams must match the declaration of sample");
#endif
#ifdef __METAL_VERSION__
struct SampleScratch {
  threadgroup uint* sumsLow;
  threadgroup uint* sumsHigh;
  threadgroup uint* foundKey;
  threadgroup long* foundRest;
  threadgroup long* foundWeight;
  threadgroup uint* largestOfSimdgroups;
  threadgroup uint* largestOfThreads;
};
inline SampleScratch scratch_of(threadgroup uchar* memory, constant SampleParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
      (threadgroup uint*)(memory + p.scratch[2]),
      (threadgroup long*)(memory + p.scratch[3]),
      (threadgroup long*)(memory + p.scratch[4]),
      (threadgroup uint*)(memory + p.scratch[5]),
      (threadgroup uint*)(memory + p.scratch[6]),
  };
}
#else
struct SampleScratch {
  int64_t* mass;
  float* largest;
  uint32_t* heaviest;
};
inline SampleScratch scratch_of(const MlxtsCpuLaunch& l, const SampleParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<int64_t*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
