// Generated from the declaration of sample; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(SampleParams) == 24, "SampleParams must match the declaration of sample");
