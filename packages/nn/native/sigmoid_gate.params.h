// Generated from the declaration of sigmoid_gate; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SIGMOID_GATE_X 0  // read
#define SIGMOID_GATE_GATE 1  // read
#define SIGMOID_GATE_OUT 2  // write
#define SIGMOID_GATE_PARAMS 3
#ifdef __METAL_VERSION__
#define SIGMOID_GATE_BLOCK 1024
#else
#define SIGMOID_GATE_BLOCK 4096
#endif

struct SigmoidGateParams {
  uint32_t tail;
};
static_assert(sizeof(SigmoidGateParams) == 4, "SigmoidGateParams must match the declaration of sigmoid_gate");
