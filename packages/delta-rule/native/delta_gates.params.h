// Generated from the declaration of delta_gates; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
  float betaScale;
  float lowerBound;
#ifndef __METAL_VERSION__
  uint32_t rowsPerThreadgroup;
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(DeltaGatesParams) == 20, "DeltaGatesParams must match the declaration of delta_gates");
#else
static_assert(sizeof(DeltaGatesParams) == 24, "DeltaGatesParams must match the declaration of delta_gates");
#endif
