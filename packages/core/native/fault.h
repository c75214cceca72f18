// What a kernel found wrong in its data; kernels for the CPU and for GPUs leave the same record.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// The code of a kernel that wrote past a scratch array; the first word is the array's number.
#define MLXTS_SCRATCH_OVERRUN 0xffffffffu

// `code` is one of the params header, 0 while nothing is wrong; the words are for the text in the kernel's declaration.
struct MlxtsFault {
  uint32_t code;
  uint32_t words[3];
};
