// The record of a fault that a kernel has found in its data, the same for CPU and GPU kernels.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// The code of a kernel that wrote past a scratch array; the first word is the array's number.
#define MLXTS_SCRATCH_OVERRUN 0xffffffffu

// `code` is one of the params header, 0 when there is no fault; the words are arguments of the text in the kernel's
// declaration.
struct MlxtsFault {
  uint32_t code;
  uint32_t words[3];
};
